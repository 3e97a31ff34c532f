#include "lib/plan/expert_memory.h"

#include <gtest/gtest.h>

namespace ktx::plan {
namespace {

using program::kAbsent;

// Two layers: 4 experts of gate, up and down; 3 whose gate and up are one.
program::Program two_layers(const char* device = "cpu") {
  program::Program program;
  const auto blob = [&](int64_t rows, int64_t cols, int64_t experts) {
    program::Blob own;
    own.dtype = DType::F32;
    own.rows = rows;
    own.cols = cols;
    own.matrices = experts;
    program.blobs.push_back(own);
    return static_cast<program::BlobId>(program.blobs.size()) - 1;
  };
  const auto step = [&](StepOp op, int32_t layer, int32_t experts,
                        std::vector<program::BlobId> weights) {
    program::Step own;
    own.op = op;
    own.layer = layer;
    own.device = device;
    own.weights = std::move(weights);
    ExpertsAttrs attrs = {};
    attrs.experts = experts;
    attrs.top_k = 2;
    own.attrs = attrs;
    program.steps.push_back(own);
  };
  const auto gate = blob(32, 64, 4), up = blob(32, 64, 4), down = blob(64, 32, 4);
  step(StepOp::ExpertsGateUp, 1, 4, {gate, up});
  step(StepOp::ExpertsDown, 1, 4, {down, kAbsent});
  const auto both = blob(16, 64, 3), other = blob(64, 16, 3);
  step(StepOp::ExpertsGateUp, 2, 3, {both, both});
  step(StepOp::ExpertsDown, 2, 3, {other, kAbsent});
  return program;
}

TEST(ExpertMemory, KnowsTheLayersOfTheCpu) {
  const auto layers = cpu_expert_layers(two_layers());
  ASSERT_EQ(layers.size(), 2u);
  EXPECT_EQ(layers[0].layer, 1);
  EXPECT_EQ(layers[0].gate_up, (std::vector<program::BlobId>{0, 1}));
  EXPECT_EQ(layers[0].down, 2);
  EXPECT_EQ(layers[1].experts, 3);
  EXPECT_EQ(layers[1].gate_up, (std::vector<program::BlobId>{3}));
  EXPECT_TRUE(cpu_expert_layers(two_layers("cuda:0")).empty());
}

TEST(ExpertMemory, ASlotHasRoomForWholeBlocksOfTheLargestExpert) {
  const ExpertMemory memory = expert_memory(two_layers());
  EXPECT_EQ(memory.experts, 7);
  EXPECT_EQ(memory.bytes, 4u * 3 * 8192 + 3 * 2 * 4096);
  EXPECT_EQ(memory.slot_bytes, 3 * (8192 + kDirectBlock));
  EXPECT_EQ(memory.least_slots, 4);
  EXPECT_EQ(memory.least_bytes(), 4 * memory.slot_bytes);
}

// A read begins and ends at a block, wherever the slice is in the file.
TEST(ExpertMemory, ASlicesRoomHoldsItAtAnyOffset) {
  for (const uint64_t bytes : {1u, 64u, 4095u, 4096u, 4097u, 884736u}) {
    for (uint64_t offset = 0; offset < kDirectBlock; offset += 64) {
      const uint64_t end = (offset + bytes + kDirectBlock - 1) / kDirectBlock * kDirectBlock;
      EXPECT_LE(end, slice_room(bytes)) << bytes << " at " << offset;
    }
  }
}

TEST(ExpertMemory, LeavesOutWhatIsNoWholeLayer) {
  program::Program program = two_layers();
  program.blobs[0].matrices = 5;  // other experts than the step has
  EXPECT_EQ(cpu_expert_layers(program).size(), 1u);
  program = two_layers();
  program.steps.pop_back();  // no down
  EXPECT_EQ(cpu_expert_layers(program).size(), 1u);
  program = two_layers();
  program.steps[2].weights = program.steps[0].weights;  // deferred experts over the same weights
  program.steps[2].attrs = program.steps[0].attrs;
  program.steps[3].weights = program.steps[1].weights;
  EXPECT_EQ(cpu_expert_layers(program).size(), 1u);
}

}  // namespace
}  // namespace ktx::plan

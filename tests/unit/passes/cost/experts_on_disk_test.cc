#include "lib/passes/cost/experts_on_disk.h"

#include <gtest/gtest.h>

#include "lib/plan/expert_memory.h"

namespace ktx::passes {
namespace {

// One layer of 8 experts, of which a token chooses 2; each in one block a slice.
program::Program one_layer() {
  program::Program program;
  for (int i = 0; i < 3; ++i) {
    program::Blob blob;
    blob.dtype = DType::F32;
    blob.rows = blob.cols = 32;
    blob.matrices = 8;
    program.blobs.push_back(blob);
  }
  ExpertsAttrs attrs = {};
  attrs.experts = 8;
  attrs.top_k = 2;
  program::Step step;
  step.op = StepOp::ExpertsGateUp;
  step.layer = 0;
  step.device = "cpu";
  step.weights = {0, 1};
  step.attrs = attrs;
  program.steps.push_back(step);
  step.op = StepOp::ExpertsDown;
  step.weights = {2, program::kAbsent};
  program.steps.push_back(step);
  return program;
}

// A second one, whose experts are used alike.
program::Program two_layers() {
  program::Program program = one_layer();
  const program::Program more = one_layer();
  program.blobs.insert(program.blobs.end(), more.blobs.begin(), more.blobs.end());
  for (program::Step step : more.steps) {
    step.layer = 1;
    for (program::BlobId& blob : step.weights) blob += blob == program::kAbsent ? 0 : 3;
    program.steps.push_back(step);
  }
  return program;
}

constexpr double kExpert = 3 * 32 * 32 * 4;  // bytes

TEST(ExpertsOnDisk, AllAlikeAreThereByTheirNumber) {
  const program::Program program = two_layers();
  const uint64_t slot = plan::expert_memory(program).slot_bytes;
  const ExpertsOnDisk disk = experts_on_disk(program, nullptr, 12 * slot + 1);
  EXPECT_EQ(disk.experts, 16);
  EXPECT_EQ(disk.slots, 12);
  EXPECT_DOUBLE_EQ(disk.hit_rate, 0.75);
  EXPECT_DOUBLE_EQ(disk.token_bytes, 0.25 * 2 * 2 * kExpert);
}

TEST(ExpertsOnDisk, TheMostUsedAreThereWithAProfile) {
  const program::Program program = two_layers();
  const uint64_t slot = plan::expert_memory(program).slot_bytes;
  plan::ExpertProfile profile;
  profile.layers[0] = {40, 30, 20, 10, 0, 0, 0, 0};
  profile.layers[1] = {0, 0, 0, 0, 25, 25, 25, 25};
  const ExpertsOnDisk disk = experts_on_disk(program, &profile, 8 * slot);
  EXPECT_EQ(disk.slots, 8);
  EXPECT_DOUBLE_EQ(disk.hit_rate, 1);
  EXPECT_DOUBLE_EQ(disk.token_bytes, 0);
}

TEST(ExpertsOnDisk, GuestsOfAGpuNeedNoMemory) {
  program::Program program = two_layers();
  program::Step group;
  group.op = StepOp::GroupExperts;
  group.layer = 0;
  group.device = "cuda:0";
  group.attrs = GroupExpertsAttrs{.experts = 4, .top_k = 2, .guests = 1};
  program.steps.push_back(group);
  const uint64_t slot = plan::expert_memory(program).slot_bytes;
  EXPECT_DOUBLE_EQ(experts_on_disk(program, nullptr, 9 * slot).hit_rate, 0.75);
}

TEST(ExpertsOnDisk, NeedRoomForALayer) {
  const program::Program program = two_layers();
  const uint64_t slot = plan::expert_memory(program).slot_bytes;
  const ExpertsOnDisk disk = experts_on_disk(program, nullptr, 8 * slot - 1);
  EXPECT_EQ(disk.slots, 0);
  EXPECT_EQ(disk.least_bytes, 8 * slot);
}

}  // namespace
}  // namespace ktx::passes

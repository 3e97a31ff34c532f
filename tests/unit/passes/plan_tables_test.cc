// The tables of a plan of DeepSeek-V3's full shape, 671 B weights, without the weights: from a GGUF
// that is a header and a hole.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <optional>

#include "lib/arch/build_graph.h"
#include "lib/passes/cost/estimate.h"
#include "lib/passes/emit_plan.h"
#include "lib/passes/placement/chunk_tokens.h"
#include "lib/plan/plan_contents.h"
#include "lib/rules/target_yaml.h"
#include "tests/support/paths.h"
#include "tests/support/temp_dir.h"
#include "tools/dev/synth/synth_model.h"

namespace ktx::passes {
namespace {

constexpr uint64_t kGiB = uint64_t{1} << 30;

class FullPlan : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto config =
        input::HfConfig::read(source_dir() + "/tests/configs/DeepSeek-V3.json").take();
    const auto writer = synth::synthesise(config, {.pool_bytes = 1 << 16}).take();
    const std::string path = dir_.path("v3.gguf");
    std::ofstream(path, std::ios::binary) << writer.header();
    std::filesystem::resize_file(path, writer.file_size());
    gguf_bytes_ = writer.file_size();
    auto source = input::open_model({.gguf_path = path}, diags_);
    ASSERT_TRUE(source) << source.error().message;
    source_.emplace(source.take());
    auto graph = arch::build_graph(*source_, diags_);
    ASSERT_TRUE(graph) << graph.error().message;
    state_.modules = graph.take();
    state_.config = &source_->config;
    state_.diags = &diags_;
    DiagSink diags;
    state_.target = rules::read_target(source_dir() + "/targets/rtx-4090.yaml", diags).take();
    state_.target.cpu.memory_bytes = 512 * kGiB;
    state_.check.target_given = state_.check.for_target = true;
    state_.check.shape.ctx = 8192;
    state_.check.shape.step_tokens = chunk_tokens(state_.modules, 0);
    const Status passed = run_passes(state_, {});
    ASSERT_TRUE(passed) << passed.error().message;
  }

  ktx::testing::TempDir dir_;
  DiagSink diags_;
  uint64_t gguf_bytes_ = 0;
  std::optional<input::ModelSource> source_;
  CompileState state_;
};

TEST_F(FullPlan, HoldsEveryByteOfTheModelOnceInPlacesThatDoNotOverlap) {
  EmitOptions options;
  options.isa = "avx2";
  auto made = make_contents(state_, *source_, options);
  ASSERT_TRUE(made) << made.error().message;
  plan::PlanContents contents = made.take();
  const auto layout = plan::lay_out(contents);
  ASSERT_TRUE(layout) << layout.error().message;
  EXPECT_GT(layout->file_bytes, 370 * kGiB);
  EXPECT_LT(static_cast<double>(layout->file_bytes), 1.01 * static_cast<double>(gguf_bytes_));

  // Blobs follow one another within their segments, segments within the file.
  uint64_t end = 0;
  std::map<std::string, uint64_t> by_device;
  for (const plan::SegmentRecord& segment : contents.segments) {
    EXPECT_GE(segment.offset, end);
    end = segment.offset + segment.size;
    EXPECT_LE(end, layout->file_bytes);
    by_device[std::string(contents.strings[segment.device])] += segment.size;
    uint64_t at = segment.offset;
    for (uint32_t i = 0; i < segment.blob_count; ++i) {
      const plan::BlobRecord& blob = contents.blobs[segment.first_blob + i];
      EXPECT_GE(blob.offset, at);
      at = blob.offset + blob.size;
      EXPECT_LE(at, end);
    }
  }
  // Each row of each tensor is there.
  std::map<uint32_t, int64_t> rows;
  for (const plan::SliceRecord& slice : contents.slices) rows[slice.tensor] += slice.row_count;
  for (uint32_t tensor = 0; tensor < contents.gguf.tensors.size(); ++tensor) {
    EXPECT_GE(rows[tensor], contents.gguf.tensors[tensor].rows)
        << contents.strings[contents.gguf.tensors[tensor].name];
  }

  // What --estimate says of the memory: weights by device, to a percent.
  const Estimate estimate = memory_of(state_).take();
  ASSERT_EQ(estimate.devices.size(), 2u);
  for (const DeviceUse& use : estimate.devices) {
    EXPECT_NEAR(static_cast<double>(by_device[use.name]) / static_cast<double>(use.weight_bytes), 1,
                0.01)
        << use.name;
    EXPECT_FALSE(use.too_small()) << use.name;
  }
  EXPECT_EQ(contents.facts.layers, 61);
  EXPECT_EQ(contents.kv_slots.size(), 61u);
  EXPECT_EQ(contents.facts.chunk_tokens, 4096) << "experts are streamed";
}

}  // namespace
}  // namespace ktx::passes

// `--ctx max` of ktx-compile and ktx-run: the largest context that a machine has room for; GPUs are
// in host memory here (tests/support/host_gpu.h).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <set>

#include "lib/plan/device_memory.h"
#include "lib/runtime/engine/largest_ctx.h"
#include "tests/support/host_gpu.h"
#include "tests/support/paths.h"
#include "tests/support/run_program.h"
#include "tests/support/temp_dir.h"

namespace ktx::testing {
namespace {

using ::testing::HasSubstr;

constexpr uint64_t kMiB = uint64_t{1} << 20;

class Compiled {
 public:
  explicit Compiled(const std::vector<std::string>& more = {},
                    const std::string& rules = "moe-experts-on-cpu") {
    std::vector<std::string> command = {ktx_compile(),
                                        model_gguf("qwen3moe"),
                                        source_dir() + "/rules/" + rules + ".yaml",
                                        "--target=" + source_dir() + "/targets/h200.yaml",
                                        "-o",
                                        path()};
    command.insert(command.end(), more.begin(), more.end());
    run = run_program(command);
    EXPECT_EQ(run.status, 0) << run.err;
    file.emplace(plan::PlanFile::open(path()).take());
  }
  std::string path() const { return dir_.path("m.ktxplan"); }
  const plan::PlanView& plan() const { return file->view(); }

  Finished run;
  std::optional<plan::PlanFile> file;

 private:
  TempDir dir_;
};

runtime::RunRoom room(uint64_t host_mib, uint64_t gpu_mib) {
  runtime::GpuFacts facts;
  facts.free_bytes = facts.total_bytes = gpu_mib * kMiB;
  return {host_mib * kMiB, {{"cuda:0", facts}}};
}

TEST(LargestCtx, IsTheModelsWhereAllFits) {
  const Compiled compiled;
  const auto found = runtime::largest_ctx(compiled.plan(), {}, room(100000, 100000)).take();
  EXPECT_EQ(found.ctx, compiled.plan().facts.context_length);
  EXPECT_THAT(found.note, HasSubstr("all that the model was made for"));
}

// In small steps of memory, of many sequences, whose caches take most of it.
TEST(LargestCtx, NeverFallsWithMoreMemoryAndEndsAtABlock) {
  const Compiled compiled;
  runtime::EngineOptions options;
  options.max_batch = 64;
  int64_t before = 0;
  std::set<int64_t> seen;
  for (uint64_t mib = 520; mib < 1400; mib += 11) {
    const auto found = runtime::largest_ctx(compiled.plan(), options, room(100000, mib)).take();
    if (found.note.find("no context fits") != std::string::npos) continue;
    EXPECT_GE(found.ctx, before) << mib << " MiB";
    EXPECT_TRUE(found.ctx % 64 == 0 || found.ctx == compiled.plan().facts.context_length);
    before = found.ctx;
    seen.insert(found.ctx);
  }
  EXPECT_GT(seen.size(), 5u);
  before = 0;
  for (uint64_t mib = 600; mib < 3000; mib += 97) {
    const auto found = runtime::largest_ctx(compiled.plan(), options, room(mib, 100000)).take();
    if (found.note.find("no context fits") != std::string::npos) continue;
    EXPECT_GE(found.ctx, before) << mib << " MiB";
    before = found.ctx;
  }
}

TEST(LargestCtx, OpensAndOneBlockMoreDoesNot) {
  const Compiled compiled;
  HostGpuLog log;
  runtime::EngineOptions options;
  options.threads = 1;
  options.max_batch = 64;
  options.largest_ctx = true;
  options.open_gpu = HostGpu::opener({.memory_bytes = 700 * kMiB}, &log);
  auto engine = runtime::Engine::open(compiled.path(), options);
  ASSERT_TRUE(engine) << engine.error().message;
  const int64_t ctx = (*engine)->ctx();
  EXPECT_GE(ctx, 64);
  EXPECT_LT(ctx, compiled.plan().facts.context_length);
  EXPECT_THAT((*engine)->notes(), ::testing::Contains(HasSubstr("--ctx max: ")));
  engine->reset();
  options.largest_ctx = false;
  options.ctx = ctx;
  EXPECT_TRUE(runtime::Engine::open(compiled.path(), options));
  options.ctx = ctx + 64;
  EXPECT_FALSE(runtime::Engine::open(compiled.path(), options));
}

TEST(LargestCtx, IsThePlansDefaultWhereNoneFits) {
  const Compiled compiled;
  const auto found = runtime::largest_ctx(compiled.plan(), {}, room(10, 100000)).take();
  EXPECT_EQ(found.ctx, compiled.plan().facts.default_ctx);
  EXPECT_THAT(found.note, HasSubstr("no context fits beside the weights"));
}

TEST(LargestCtx, IsAskedForOnBothCommandLines) {
  const Compiled compiled({"--ctx", "max"});
  EXPECT_THAT(compiled.run.err, HasSubstr("--ctx max: "));
  EXPECT_EQ(compiled.plan().facts.default_ctx, compiled.plan().facts.context_length);
  const Compiled limited({"--ctx=max", "--kv-budget=8M", "--max-batch", "8"});
  EXPECT_LT(limited.plan().facts.default_ctx, limited.plan().facts.context_length);

  TempDir dir;
  const std::string plan = dir.path("m.ktxplan");
  ASSERT_EQ(run_program({ktx_compile(), "-q", model_gguf("llama"),
                         source_dir() + "/rules/cpu-only.yaml", "-o", plan})
                .status,
            0);
  const Finished run =
      run_program({ktx_run(), "generate", plan, "--prompt-ids", "1,2", "-n", "1", "--ctx", "max"});
  EXPECT_EQ(run.status, 0) << run.err;
  EXPECT_THAT(run.err, HasSubstr("--ctx max: "));
  const Finished wrong = run_program({ktx_run(), "chat", plan, "--ctx", "most"});
  EXPECT_EQ(wrong.status, 2);
  EXPECT_THAT(wrong.err, HasSubstr("or max, not 'most'"));
}

TEST(EnlargedChunk, IsOfMixturesThatAGpuHasRoomFor) {
  const Compiled all({}, "all-gpu"), hybrid;
  EXPECT_TRUE(runtime::may_enlarge_chunk(all.plan(), {}));
  EXPECT_FALSE(runtime::may_enlarge_chunk(hybrid.plan(), {}));
  runtime::EngineOptions asked;
  asked.chunk_tokens = 64;
  EXPECT_FALSE(runtime::may_enlarge_chunk(all.plan(), asked));
  EXPECT_EQ(runtime::enlarged_chunk(all.plan(), {}, room(100000, 100000)).take(), 4096);
  runtime::EngineOptions several;
  several.max_batch = 2;
  EXPECT_EQ(runtime::enlarged_chunk(all.plan(), several, room(100000, 100000)).take(), 2048);
  // 512 MiB are the reserve (gpu_fit.cc).
  EXPECT_EQ(runtime::enlarged_chunk(all.plan(), {}, room(100000, 520)).take(), std::nullopt);
}

TEST(EnlargedChunk, GivesWayToACacheThatJustFits) {
  const Compiled all({}, "all-gpu");
  HostGpuLog log;
  const auto most_needed = [&](int64_t chunk) {
    runtime::EngineOptions options;
    options.threads = 1;
    options.chunk_tokens = chunk;
    uint64_t mib = 512;  // the reserve alone
    for (bool opens = false; !opens; mib += 1) {
      options.open_gpu = HostGpu::opener({.memory_bytes = mib * kMiB}, &log);
      opens = bool{runtime::Engine::open(all.path(), options)};
    }
    return mib - 1;
  };
  const uint64_t usual = most_needed(1024), large = most_needed(2048), largest = most_needed(4096);
  ASSERT_LT(usual, large);
  ASSERT_LT(large, largest);
  for (const auto& [mib, chunk] : {std::pair{usual, 1024}, {large, 2048}, {largest, 4096}}) {
    runtime::EngineOptions options;
    options.threads = 1;
    options.open_gpu = HostGpu::opener({.memory_bytes = mib * kMiB}, &log);
    auto engine = runtime::Engine::open(all.path(), options);
    ASSERT_TRUE(engine) << engine.error().message;
    EXPECT_EQ((*engine)->chunk_tokens(), chunk) << mib << " MiB";
  }
}

}  // namespace
}  // namespace ktx::testing

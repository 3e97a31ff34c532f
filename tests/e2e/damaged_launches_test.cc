// Plans of a GPU whose parts and launches are damaged but have right hashes: refused, or run to
// an end with a GPU in host memory; never a crash.
#include <gtest/gtest.h>

#include <random>

#include "lib/runtime/engine/engine.h"
#include "tests/support/host_gpu.h"
#include "tests/support/paths.h"
#include "tests/support/run_program.h"
#include "tests/support/temp_dir.h"
#include "tests/support/test_models.h"
#include "tests/unit/plan/plan_bytes.h"

namespace ktx::testing {
namespace {

class DamagedLaunches : public ::testing::TestWithParam<const char*> {};

TEST_P(DamagedLaunches, AreRefusedOrRunToAnEnd) {
  const TempDir dir;
  const std::string plan = dir.path("model.ktxplan");
  const Finished made = run_program(
      {ktx_compile(), "-q", model_gguf("qwen3moe"), source_dir() + "/rules/moe-experts-on-cpu.yaml",
       "--target=" + source_dir() + "/targets/h200.yaml", GetParam(), "-o", plan});
  ASSERT_EQ(made.status, 0) << made.err;
  const std::vector<std::byte> whole = plan::read_bytes(plan);
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937_64 random(seed);
  constexpr plan::SectionId kSections[] = {plan::SectionId::Parts, plan::SectionId::Launches,
                                           plan::SectionId::LaunchSteps};
  constexpr uint32_t kValues[] = {0,  1,      2,          3,          16,        75,
                                  90, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF};
  int refused = 0, ran = 0;
  // 200 rounds; more where chance left too few that ran.
  for (int round = 0; round < 200 || (ran <= 5 && round < 2000); ++round) {
    std::vector<std::byte> bytes = whole;
    const plan::SectionEntry* section = plan::find_section(bytes, kSections[random() % 3]);
    ASSERT_GE(section->size, 4u);
    const uint64_t at = section->offset + random() % (section->size / 4) * 4;
    uint32_t value = 0;
    std::memcpy(&value, bytes.data() + at, 4);
    value = random() % 2 == 0 ? kValues[random() % std::size(kValues)]
                              : value + (random() % 2 == 0 ? 1 : -1);
    std::memcpy(bytes.data() + at, &value, 4);
    plan::fix_hashes(bytes);
    const std::string path =
        dir.write("damaged.ktxplan", {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
    runtime::EngineOptions options;
    options.threads = 1;
    HostGpuLog log;
    options.open_gpu = HostGpu::opener({}, &log);
    auto engine = runtime::Engine::open(path, options);
    if (!engine.ok()) {
      ++refused;
      continue;
    }
    runtime::Sequence sequence = (*engine)->new_sequence();
    const std::vector<int32_t> ids = {1, 5, 9};
    const runtime::BatchItem item{&sequence, ids, runtime::Want::Last};
    (void)(*engine)->forward({&item, 1});
    ++ran;
  }
  EXPECT_GT(refused, 20);
  EXPECT_GT(ran, 5);
}

INSTANTIATE_TEST_SUITE_P(All, DamagedLaunches,
                         ::testing::Values("--prefer=stream-experts=no",
                                           "--prefer=stream-experts=2"),
                         [](const auto& info) {
                           return std::string(info.index == 0 ? "as_placed" : "streamed");
                         });

}  // namespace
}  // namespace ktx::testing

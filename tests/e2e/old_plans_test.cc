// Plans of earlier formats run, and answer as those of today (docs/plan-format.md, Versions).
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/support/run_program.h"
#include "tests/unit/plan/plan_bytes.h"

namespace ktx::testing {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

// With the numbers of earlier formats, and without their later sections.
TEST(OldPlans, OfFormats34To36Run) {
  const TempDir dir;
  const std::string plan = dir.path("m.ktxplan");
  ASSERT_EQ(run_program({ktx_compile(), "-q", model_gguf("qwen3moe"), "-o", plan}).status, 0);
  const auto answer = [&](const std::string& path) {
    return run_program(
        {ktx_run(), "generate", path, "--prompt-ids", "1,2,3", "-n", "8", "--temp", "0"});
  };
  const Finished now = answer(plan);
  ASSERT_EQ(now.status, 0) << now.err;
  const auto bytes = plan::read_bytes(plan);
  for (const uint16_t minor : {4, 5, 6}) {
    const auto old = plan::as_format(bytes, minor);
    const std::string path =
        dir.write("old.ktxplan", {reinterpret_cast<const char*>(old.data()), old.size()});
    const Finished then = answer(path);
    EXPECT_EQ(then.status, 0) << then.err;
    EXPECT_EQ(then.out, now.out) << "3." << minor;
    const Finished inspected = run_program({ktx_run(), "inspect", path, "--verify"});
    EXPECT_EQ(inspected.status, 0) << inspected.err;
    // What they have not: a root to sign.
    const Finished root = run_program({ktx_run(), "inspect", path, "--root"});
    EXPECT_EQ(root.status, 1);
    EXPECT_THAT(root.err, HasSubstr("without SHA-256 digests; compile it again"));
  }
}

// Those that compilers of earlier formats have written (tests/e2e/plans/make_model.py): as what
// today's compiler makes of the GGUF within them.
class KeptPlans : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    const std::string packed =
        fmt::format("{}/tests/e2e/plans/{}.ktxplan.xz", source_dir(), GetParam());
    const Finished unpacked = run_program(
        {"/bin/sh", "-c",
         fmt::format("command -v xz > /dev/null || exit 9; xz -dc '{}' > '{}'", packed, old_)});
    if (unpacked.status == 9) GTEST_SKIP() << "no xz";
    ASSERT_EQ(unpacked.status, 0) << unpacked.err;
  }
  static json result(const Finished& run) {
    EXPECT_EQ(run.status, 0) << run.err;
    return json::parse(run.out, nullptr, false);
  }
  static json answer(const std::string& plan) {
    return result(
        run_program({ktx_run(), "generate", plan, "--prompt-ids", "1,262,270", "-n", "24", "--temp",
                     "0", "--json", "--logprobs", "3", "--precision", "exact"}));
  }

  TempDir dir_;
  std::string old_ = dir_.path("old.ktxplan");
};

TEST_P(KeptPlans, RunAsNewOnes) {
  EXPECT_EQ(result(run_program({ktx_run(), "inspect", old_, "--json"}))["format"], GetParam());
  const std::string gguf = dir_.path("m.gguf"), made = dir_.path("new.ktxplan");
  ASSERT_EQ(run_program({ktx_run(), "inspect", old_, "--export-gguf", gguf}).status, 0);
  ASSERT_EQ(run_program({ktx_compile(), "-q", gguf, "-o", made}).status, 0);
  const json before = answer(old_), now = answer(made);
  ASSERT_EQ(before["ids"].size(), 24u);
  EXPECT_EQ(before["ids"], now["ids"]);
  for (size_t i = 0; i < before["steps"].size(); ++i) {
    EXPECT_NEAR(before["steps"][i]["logprob"].get<double>(),
                now["steps"][i]["logprob"].get<double>(), 1e-4)
        << i;
  }
  EXPECT_EQ(run_program({ktx_run(), "inspect", old_, "--verify"}).status, 0);
}

INSTANTIATE_TEST_SUITE_P(All, KeptPlans, ::testing::Values("3.4", "3.5"), [](const auto& info) {
  std::string name = info.param;
  name[1] = '_';
  return name;
});

}  // namespace
}  // namespace ktx::testing

// Longrope: a plan holds the rotary factors of short contexts or those of long ones, by --ctx.
// The logits of both are transformers' (tests/models/synthetic/phi3_longrope).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>

#include "lib/runtime/engine/engine.h"
#include "lib/runtime/engine/largest_ctx.h"
#include "tests/support/paths.h"
#include "tests/support/run_program.h"
#include "tools/dev/synth/synth_model.h"

namespace ktx::testing {
namespace {

const std::vector<int32_t> kTokens = {7, 300, 12, 12, 255, 1, 64, 33, 290, 8, 15, 15};

class LongRope : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto config = input::HfConfig::read(folder_);
    ASSERT_TRUE(config.ok()) << config.error().message;
    const auto writer = synth::synthesise(*config, {.types = "f32", .strong = true});
    ASSERT_TRUE(writer.ok() && writer->write(dir_.path("m.gguf")));
  }

  Finished compile(const std::string& ctx) {
    return run_program({ktx_compile(), dir_.path("m.gguf"), "-o", dir_.path("m.ktxplan"),
                        source_dir() + "/rules/cpu-only.yaml", "--ctx", ctx,
                        "--target=" + source_dir() + "/targets/h200.yaml"});
  }

  Result<std::unique_ptr<runtime::Engine>> open(std::optional<int64_t> ctx) {
    runtime::EngineOptions options;
    options.precision = runtime::Precision::Exact;
    options.threads = 2;
    options.all_logits = true;
    options.ctx = ctx;
    return runtime::Engine::open(dir_.path("m.ktxplan"), options);
  }

  // Compares the logits of the best token and of token 0 at each position with those in the file.
  void compare(runtime::Engine& engine, size_t count, const std::string& file) {
    runtime::Sequence sequence = engine.new_sequence();
    const runtime::BatchItem item{&sequence, std::span(kTokens).first(count), runtime::Want::All};
    ASSERT_TRUE(engine.forward({&item, 1}).ok());
    std::ifstream in(folder_ + "/" + file);
    for (size_t t = 0; t < count; ++t) {
      size_t best = 0;
      float top = 0, first = 0;
      ASSERT_TRUE(in >> best >> top >> first) << file;
      const auto logits = engine.logits(static_cast<int64_t>(t));
      EXPECT_EQ(static_cast<size_t>(std::ranges::max_element(logits) - logits.begin()), best) << t;
      EXPECT_NEAR(logits[best], top, 1e-4 * (1 + std::abs(top))) << t;
      EXPECT_NEAR(logits[0], first, 1e-4 * (1 + std::abs(top))) << t;
    }
  }

  const std::string folder_ = source_dir() + "/tests/models/synthetic/phi3_longrope";
  const TempDir dir_;
};

TEST_F(LongRope, ShortContextsHaveTheirOwnFactors) {
  ASSERT_EQ(compile("5").status, 0);
  const auto engine = open({});
  ASSERT_TRUE(engine.ok()) << engine.error().message;
  compare(**engine, 5, "logits_short.txt");
  const auto longer = open(6);
  ASSERT_FALSE(longer.ok());
  EXPECT_THAT(longer.error().message,
              ::testing::HasSubstr("--ctx 6 is more than the 5 tokens that the plan's rotary "
                                   "factors (longrope) are for; compile the model again with "
                                   "--ctx 6"));
}

TEST_F(LongRope, LongContextsHaveTheirs) {
  const Finished run = compile("64");
  ASSERT_EQ(run.status, 0) << run.err;
  EXPECT_THAT(run.err, ::testing::HasSubstr("--ctx 64 takes longrope's factors of contexts above "
                                            "5 tokens, for short texts, too"));
  for (const int64_t ctx : {int64_t{64}, int64_t{12}}) {
    const auto engine = open(ctx);
    ASSERT_TRUE(engine.ok()) << engine.error().message;
    compare(**engine, kTokens.size(), "logits.txt");
  }
}

TEST_F(LongRope, TheLargestContextHasTheLongOnes) {
  const Finished run = compile("max");
  ASSERT_EQ(run.status, 0) << run.err;
  EXPECT_THAT(run.err, ::testing::HasSubstr("--ctx max takes longrope's factors of contexts above "
                                            "5 tokens, for short texts, too; where no more fit, "
                                            "compile with --ctx 5"));
  const auto engine = open({});
  ASSERT_TRUE(engine.ok()) << engine.error().message;
  EXPECT_EQ((*engine)->ctx(), 64);  // the model's
  compare(**engine, kTokens.size(), "logits.txt");
}

TEST_F(LongRope, TheLargestContextOfShortFactorsIsTheirs) {
  ASSERT_EQ(compile("5").status, 0);
  const auto plan = plan::PlanFile::open(dir_.path("m.ktxplan"));
  ASSERT_TRUE(plan.ok()) << plan.error().message;
  const auto found = runtime::largest_ctx(plan->view(), {}, {});
  ASSERT_TRUE(found.ok()) << found.error().message;
  EXPECT_EQ(found->ctx, 5);
  EXPECT_EQ(found->note,
            "--ctx max: 5 tokens, all that the plan's rotary factors (longrope) are for");
}

}  // namespace
}  // namespace ktx::testing

// A plan for two hosts in parts (ktx-compile --split-by-host): a part has the header, the hashes
// and one host's weights of the whole plan, runs beside another part or the whole plan with the
// bits of it, and is refused where another host reads it, or where its end is damaged.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>

#include "lib/plan/host_part.h"
#include "lib/plan/plan_hosts.h"
#include "lib/plan/plan_reader.h"
#include "lib/runtime/engine/engine.h"
#include "tests/support/host_threads.h"
#include "tests/support/paths.h"
#include "tests/support/run_program.h"
#include "tests/support/temp_dir.h"
#include "tests/support/test_models.h"
#include "tests/support/text_session.h"

namespace ktx::testing {
namespace {

using ::testing::HasSubstr;
namespace fs = std::filesystem;

class HostParts : public ::testing::Test {
 protected:
  void SetUp() override {
    const std::string target = dir_.write(
        "hosts.yaml",
        "hosts: [{name: a, cpu: {isa: avx2, cores: 4}}, {name: b, cpu: {isa: avx2, cores: 4}}]\n");
    const Finished run = run_program({ktx_compile(), test_model_gguf("qwen3moe"), "-o", whole(),
                                      "--target=" + target, "--split-by-host"});
    ASSERT_EQ(run.status, 0) << run.err;
    EXPECT_THAT(run.out + run.err, HasSubstr("m.b.ktxplan: the part of host b"));
  }
  std::string whole() const { return dir_.path("m.ktxplan"); }
  std::string part(const char* host) const { return plan::host_part_path(whole(), host); }

  // The bits of a prompt's last logits and of those of a token behind it.
  static std::vector<float> logits(const std::string& first, const std::string& second) {
    HostThreads hosts({first, second}, 2);
    runtime::EngineOptions options;
    options.threads = 1;
    options.ctx = 128;
    options.hosts = hosts.first();
    const auto engine = runtime::Engine::open(first, options);
    EXPECT_TRUE(engine.ok()) << engine.error().message;
    std::vector<float> all;
    if (!engine) return all;
    runtime::Sequence sequence = (*engine)->new_sequence();
    const std::vector<int32_t> text = random_text(40, 7);
    for (const auto tokens : {std::span(text).first(39), std::span(text).last(1)}) {
      const runtime::BatchItem item{&sequence, tokens, runtime::Want::Last};
      const auto done = (*engine)->forward({&item, 1});
      EXPECT_TRUE(done.ok()) << done.error().message;
      if (!done) return all;
      const auto row = (*engine)->logits(0);
      all.insert(all.end(), row.begin(), row.end());
    }
    return all;
  }
  static std::string error_of(const std::string& path, const plan::PlanOpenOptions& options) {
    const auto file = plan::PlanFile::open(path, options);
    return file.ok() ? "" : file.error().message;
  }

  TempDir dir_;
};

TEST_F(HostParts, HaveTheirOwnWeightsAlone) {
  const plan::PlanFile all = plan::PlanFile::open(whole()).take();
  uintmax_t sizes = 0;
  for (const size_t host : {0, 1}) {
    const std::string path = part(host == 0 ? "a" : "b");
    sizes += fs::file_size(path);
    auto opened = plan::PlanFile::open(path, {.verify_weights = true, .host = host});
    ASSERT_TRUE(opened.ok()) << opened.error().message;
    const plan::PlanFile own = opened.take();
    EXPECT_EQ(own->identity, all->identity);
    ASSERT_EQ(own->segments.size(), all->segments.size());
    size_t present = 0;
    for (size_t s = 0; s < own->segments.size(); ++s) {
      const plan::SegmentRecord& segment = own->segments[s];
      const auto of = [&](const plan::PlanFile& plan) {
        return plan->file.subspan(segment.offset, segment.size);
      };
      const bool same = std::ranges::equal(of(own), of(all));
      EXPECT_EQ(same, plan::has_weights(own.view(), segment));
      present += same ? 1 : 0;
    }
    EXPECT_GT(present, 0u);
    EXPECT_LT(present, own->segments.size());
  }
  const uintmax_t head = all->segments[0].offset;
  EXPECT_LT(sizes, fs::file_size(whole()) + head + 16 * 4096);
}

TEST_F(HostParts, GiveTheBitsOfTheWholePlan) {
  const std::vector<float> wanted = logits(whole(), whole());
  ASSERT_FALSE(wanted.empty());
  EXPECT_EQ(logits(part("a"), part("b")), wanted);
  EXPECT_EQ(logits(whole(), part("b")), wanted);
}

TEST_F(HostParts, AreReadByTheirHostsAlone) {
  EXPECT_THAT(
      error_of(part("b"), {.own_weights = true}),
      HasSubstr("has the weights of host b (rank 1) alone, and is read on host a (rank 0)"));
  EXPECT_EQ(error_of(part("b"), {}), "");  // to look at
  const Finished exported =
      run_program({ktx_run(), "inspect", part("a"), "--export-gguf", dir_.path("x.gguf")});
  EXPECT_EQ(exported.status, 1);
  EXPECT_THAT(exported.err, HasSubstr("export from the whole plan"));
  const Finished inspected = run_program({ktx_run(), "inspect", part("b"), "--verify"});
  EXPECT_EQ(inspected.status, 0) << inspected.err;
  EXPECT_THAT(inspected.out, HasSubstr("this file has the weights of b alone"));
}

TEST_F(HostParts, DamageIsFound) {
  const std::string good = read_file(part("b"));
  const size_t end = good.size();
  const auto with = [&](std::string bytes) {
    return error_of(dir_.write("damaged.ktxplan", bytes),
                    {.verify_weights = true, .host = 1, .own_weights = true});
  };
  EXPECT_EQ(with(good), "");
  std::string weights = good;
  weights[end - 4096 - 200] ^= 1;  // of the last segment, or its padding
  EXPECT_NE(with(weights), "");
  EXPECT_NE(with(good.substr(0, end - 1)), "");
  // Any byte of the ranges and of the mark, of the mark's reserved ones but.
  int unnoticed = 0;
  for (size_t at = end - 64 - 2 * 24; at < end; ++at) {
    for (const char change : {char(1), char(0x80)}) {
      std::string bytes = good;
      bytes[at] = static_cast<char>(bytes[at] ^ change);
      unnoticed += with(bytes).empty() ? 1 : 0;
    }
  }
  EXPECT_EQ(unnoticed, 2 * 36) << "the mark has 36 reserved bytes";
}

TEST_F(HostParts, TakeATargetWithHosts) {
  const Finished run = run_program(
      {ktx_compile(), test_model_gguf("llama"), "-o", dir_.path("x.ktxplan"), "--split-by-host"});
  EXPECT_EQ(run.status, 1);
  EXPECT_THAT(run.err, HasSubstr("--split-by-host takes a target with hosts"));
}

}  // namespace
}  // namespace ktx::testing

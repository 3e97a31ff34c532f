// Plans for several hosts, engines of them and the bits that they compute, for the tests of this
// folder.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "lib/plan/plan_hosts.h"
#include "lib/plan/plan_reader.h"
#include "lib/runtime/engine/engine.h"
#include "tests/support/paths.h"
#include "tests/support/run_program.h"
#include "tests/support/state_models.h"
#include "tests/support/temp_dir.h"

namespace ktx::testing {

inline std::string target_of(int hosts) {
  return fmt::format(
      "network: {{gbit: 10, latency_us: 50}}\nhosts:\n  - {{name: a, cpu: {{isa: avx2, cores: 4}}}}\n"
      "  - {{name: b, cpu: {{isa: avx2, cores: 4}}, count: {}}}\n",
      hosts - 1);
}

// The plan of a model for one machine, or for hosts a, b (or b1, b2, ...).
class Plan {
 public:
  Plan(const std::string& gguf, int hosts, const std::string& rules = "",
       const std::vector<std::string>& more = {}) {
    std::vector<std::string> command = {ktx_compile(), "-q", gguf, "-o", path()};
    command.insert(command.end(), more.begin(), more.end());
    if (hosts > 1) command.push_back("--target=" + dir_.write("hosts.yaml", target_of(hosts)));
    if (!rules.empty()) command.push_back(dir_.write("rules.yaml", "version: 1\nrules:\n" + rules));
    const Finished run = run_program(command);
    EXPECT_EQ(run.status, 0) << run.err;
  }
  std::string path() const { return dir_.path("m.ktxplan"); }

  // Hosts that compute something.
  std::set<size_t> used() const {
    const plan::PlanFile file = plan::PlanFile::open(path()).take();
    std::set<size_t> hosts;
    for (const plan::StepRecord& step : file->steps) {
      hosts.insert(plan::host_of(file.view(), file->string(step.device)));
    }
    return hosts;
  }

 private:
  TempDir dir_;
};

inline runtime::EngineOptions small(std::shared_ptr<runtime::HostGroup> hosts = nullptr) {
  runtime::EngineOptions options;
  options.threads = 1;
  options.ctx = 512;
  options.max_batch = 3;
  options.chunk_tokens = 80;
  options.hosts = std::move(hosts);
  return options;
}

inline std::unique_ptr<runtime::Engine> open(const std::string& plan,
                                             const runtime::EngineOptions& options) {
  auto engine = runtime::Engine::open(plan, options);
  EXPECT_TRUE(engine.ok()) << engine.error().message;
  return engine.ok() ? engine.take() : nullptr;
}

using Bits = std::vector<std::byte>;

inline void add_bits(runtime::Engine& engine, Bits& bits) {
  for (int64_t row = 0; row < engine.logits_rows(); ++row) {
    const auto own = std::as_bytes(engine.logits(row));
    bits.insert(bits.end(), own.begin(), own.end());
  }
}

inline int32_t best_id(runtime::Engine& engine, int64_t row) {
  const auto logits = engine.logits(row);
  return static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

// A test of each model, by name.
class ModelOfHosts : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    gguf_ = state_model_gguf(GetParam(), dir_);
    if (gguf_.empty()) GTEST_SKIP() << "no model " << GetParam();
  }
  const TempDir dir_;
  std::string gguf_;
};

}  // namespace ktx::testing

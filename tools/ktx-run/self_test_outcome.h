// The self-test of a plan on an open engine: its weights in memory, and its answers. For the
// commands selftest, doctor and serve.
#pragma once

#include <atomic>
#include <string>
#include <vector>

#include "lib/plan/self_test.h"
#include "lib/runtime/engine/engine.h"
#include "lib/runtime/quality/replay_answers.h"
#include "lib/support/result.h"

namespace ktx::tools {

struct SelfTestOutcome {
  plan::SelfTest test;
  runtime::SelfTestRun answers;
  std::vector<std::string> damaged;  // weights, and the steps that read them

  bool passed() const { return damaged.empty() && answers.passed(); }
};

// Fails where the plan has no self-test, and where the engine fails.
Result<SelfTestOutcome> run_self_test(runtime::Engine& engine,
                                      const std::atomic<bool>* stop = nullptr);

// "34 answers: 0.0021 from the source's in the median (at most 0.02), 0.0064 at worst ...".
std::string answers_text(const runtime::SelfTestRun& run);
// What is wrong, in one line; "": nothing.
std::string failure_text(const SelfTestOutcome& outcome);

// "step 12 (matmul of model.layers.0.self_attn.q_proj on cpu)".
std::string step_text(const plan::PlanView& plan, uint32_t step);

}  // namespace ktx::tools

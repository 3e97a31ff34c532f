// Whether this machine, with the kernels and devices of an open engine, answers a plan's self-test
// (lib/plan/self_test.h) as the source's weights do.
//
//   const plan::SelfTest test = KTX_TRY(plan::read_self_test(engine.plan()));
//   const SelfTestRun run = KTX_TRY(replay(engine, test));
//   if (!run.passed()) locate_fault(...)          // locate_fault.h
//
// Each prompt is computed twice: as a whole, by the kernels of many tokens, whose last answer
// counts, and token by token, by those of decode, with all answers. An answer's divergence is
// KL(p || q) of its best tokens and one more for all others together, p by the source and q by this
// machine, in nats. A wrong kernel shows in most answers and so in their median; a single answer
// may be far off on a right machine, where rounding gives a token to another expert.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

#include "lib/plan/self_test.h"
#include "lib/runtime/engine/engine.h"
#include "lib/support/result.h"

namespace ktx::runtime {

// Bounds of divergences, which are infinity for logits that are no numbers.
struct SelfTestBound {
  double median = 0, worst = 0;
};

struct SelfTestRun {
  int64_t answers = 0;
  double median = 0, worst = 0;
  size_t prompt = 0;  // of the worst
  int64_t token = 0;
  bool as_a_whole = false;
  SelfTestBound bound;

  bool passed() const { return median <= bound.median && worst <= bound.worst; }
};

double divergence_of(const plan::SelfTestAnswer& source, std::span<const float> logits);

// What right machines stay below, by precision (docs/cli.md#selftest).
SelfTestBound self_test_bound(const Engine& engine);

// Fails where the context is too short or the engine fails, and with "stopped" once `stop` (null:
// nothing) is true.
Result<SelfTestRun> replay(Engine& engine, const plan::SelfTest& test,
                           const std::atomic<bool>* stop = nullptr);

// Computes tokens behind those of the sequence; the engine has the logits of the last one then.
Status append_tokens(Engine& engine, Sequence& sequence, std::span<const int32_t> tokens);

}  // namespace ktx::runtime

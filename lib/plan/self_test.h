// The model's answers to a few prompts, from the source weights in exact arithmetic: the
// section `self-test`, which ends the file. ktx-compile makes it (lib/passes/make_self_test.h),
// ktx-run compares (lib/runtime/quality/replay_answers.h).
//
//   prompt 0: tokens 1 812 77 ...
//     behind token 0: the 16 largest logits, ln of the sum of e^logit over all
//     behind layers -1 (the embedding), 0, 1 ... of the last token: |x| and 16 numbers of x
//
// A plan is the same with and without it (PlanView::identity).
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lib/plan/plan_reader.h"
#include "lib/support/result.h"

namespace ktx::plan {

inline constexpr size_t kSelfTestBest = 16;
inline constexpr size_t kSketchNumbers = 16;

// Sums of a vector's elements with 16 patterns of signs: the mean square of the differences of two
// vectors' numbers is the expected square of their distance (Achlioptas 2003, "Database-friendly
// random projections").
using Sketch = std::array<float, kSketchNumbers>;
Sketch sketch_of(std::span<const float> x);

struct SelfTestAnswer {
  std::vector<int32_t> ids;  // of the largest logits, largest first
  std::vector<float> logits;
  double log_sum = 0;
};

struct SelfTestStream {
  int32_t layer = -1;
  double norm = 0;
  Sketch sketch = {};
  // |y - x| / |x|, about: within a quarter of it, most of the time.
  double difference(std::span<const float> y) const;
};

struct SelfTestPrompt {
  std::vector<int32_t> tokens;
  std::vector<SelfTestAnswer> answers;  // behind each token
  std::vector<SelfTestStream> streams;  // of the last token, by layer
};

struct SelfTest {
  std::vector<SelfTestPrompt> prompts;
};

// The largest logits of a row and the sum over it.
SelfTestAnswer answer_of(std::span<const float> logits);

std::string to_json(const SelfTest& test);

// Fails where the plan has none, where it is damaged, and on numbers that the model does not have.
// Safe for untrusted plans.
Result<SelfTest> read_self_test(const PlanView& plan);

}  // namespace ktx::plan

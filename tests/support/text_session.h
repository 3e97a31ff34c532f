// Texts of random tokens, and what a session says to them.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "lib/runtime/sampling/random.h"
#include "lib/runtime/session/session.h"

namespace ktx::testing {

// Ids below 256: bytes, in the test models.
inline std::vector<int32_t> random_text(int64_t tokens, uint64_t seed) {
  runtime::Random random(seed);
  std::vector<int32_t> ids;
  for (int64_t i = 0; i < tokens; ++i) ids.push_back(static_cast<int32_t>(random.next() % 256));
  return ids;
}

// Greedy, and no word again and again, as answers to random text would be.
inline runtime::SamplingOptions varied_greedy() {
  runtime::SamplingOptions options = runtime::greedy_sampling();
  options.frequency_penalty = 1;
  options.penalty_window = -1;
  return options;
}

// Fewer than `count` where the session ends.
inline std::vector<int32_t> next_tokens(runtime::Session& session, int count) {
  std::vector<int32_t> ids;
  for (int i = 0; i < count; ++i) {
    const auto token = session.next();
    EXPECT_TRUE(token.ok()) << token.error().message;
    if (!token.ok() || token->outcome != runtime::Outcome::Ok) break;
    ids.push_back(token->id);
  }
  return ids;
}

}  // namespace ktx::testing

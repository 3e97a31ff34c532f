// The lines of JSON of ktx-run score.
//
//   {"id": 7, "prompt": "2 + 2 =", "text": " 4"}     what is scored, and what stands before it
//   {"prompt_ids": [1, 2], "ids": [3]}               the same as token ids; nothing is added
//   {"id": 7, "logprob": -0.21, "tokens": 1, "greedy": true, "ids": [3], "logprobs": [-0.21]}
//
// A text begins as a prompt of generate does: with BOS, where the model asks for it. The answer has
// the line's other fields as they are.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "lib/runtime/sampling/sampler.h"
#include "lib/support/result.h"
#include "lib/text/tokenizer/tokenizer.h"

namespace ktx::tools {

inline constexpr size_t kMostErrors = 20;  // lines that a message names

struct ScoreLine {
  int64_t number = 0;           // from 1 on
  nlohmann::ordered_json rest;  // the fields that are the caller's
  std::string prompt, text;
  std::vector<int32_t> prompt_ids, ids;
  bool of_ids = false;
};

// Empty lines are left out. Fails with the wrong lines, "NAME:3: ...". Safe for untrusted text.
Result<std::vector<ScoreLine>> parse_score_lines(std::string_view text, const std::string& name);

// All tokens of a line, and from which on they are scored.
struct ScoreTokens {
  std::vector<int32_t> ids;
  int64_t begin = 0;
};
// Fails where there is nothing to score, or an id is outside of the vocabulary.
Result<ScoreTokens> score_tokens(const ScoreLine& line, const text::Tokenizer& tokenizer,
                                 int64_t vocabulary);

// `logprobs`: of the text's tokens, but of the first of all, each with the likeliest one there.
std::string score_answer(const ScoreLine& line, const ScoreTokens& tokens,
                         const std::vector<runtime::Logprobs>& logprobs);

}  // namespace ktx::tools

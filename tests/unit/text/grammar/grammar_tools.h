// Vocabularies and shorthands of the grammar tests.
#pragma once

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "lib/text/grammar/grammar.h"

namespace ktx::text {

// Every byte, an end token (256), then pieces as vocabularies have them: words, JSON
// with quotes and brackets in all positions, white space, parts of characters.
inline std::shared_ptr<const GrammarVocabulary> small_vocabulary() {
  static const auto vocabulary = [] {
    std::vector<std::string> tokens;
    for (int byte = 0; byte < 256; ++byte) tokens.emplace_back(1, static_cast<char>(byte));
    tokens.emplace_back("");  // the end
    for (const char* piece : {"the",      " fox",      "name",     "age",   "a",
                              "ab",       "abc",       "\":",      "\": ",  "\": \"",
                              "\", \"",   "\",",       "\"}",      "\"]",   "},",
                              "}, {",     "}}",        "]}",       "]]",    "[[",
                              "[{",       "{\"",       "[\"",      "\n",    "\n  ",
                              "\n    ",   "  ",        "true",     "false", "null",
                              "12",       "345",       "-1",       "0.5",   "e10",
                              "\\n",      "\\u",       "\\\"",     "é",     "你好",
                              "\xE4\xBD", "\xA0\xE5",  "\xF0\x9F", "2024-", "\"name\": \"",
                              "}\n",      "{\"name\"", "\"a\"",    "[1, 2", "]",
                              ", ",       ",",         "x\"",      "\"\"",  "{}",
                              "[]",       "tru",       "e,"}) {
      tokens.emplace_back(piece);
    }
    tokens.emplace_back("");  // a control token
    return GrammarVocabulary::create(std::move(tokens), {256});
  }();
  return vocabulary;
}
inline constexpr int32_t kEndToken = 256;

inline Grammar gbnf(std::string_view text) {
  Result<Grammar> g = Grammar::compile({GrammarKind::Gbnf, std::string(text)}, small_vocabulary());
  if (!g) ADD_FAILURE() << text << ": " << g.error().message;
  return g ? g.take() : gbnf("root ::= \"\"");
}
inline Grammar schema(std::string_view text) {
  Result<Grammar> g =
      Grammar::compile({GrammarKind::JsonSchema, std::string(text)}, small_vocabulary());
  if (!g) ADD_FAILURE() << text << ": " << g.error().message;
  return g ? g.take() : schema("true");
}
inline std::string error_of(GrammarKind kind, std::string_view text) {
  const Result<Grammar> g = Grammar::compile({kind, std::string(text)}, small_vocabulary());
  return g ? "no error" : g.error().message;
}

inline bool matches(const Grammar& grammar, std::string_view text) {
  GrammarState state(grammar);
  return state.accept(text) && state.may_end();
}

// A random answer of up to `most` tokens, as a sampler would make it; "" and a test
// failure when the mask and accept() disagree.
struct Sample {
  std::string text;
  bool ended = false;
};
inline Sample sample(const Grammar& grammar, std::mt19937& random, int most) {
  GrammarState state(grammar);
  const size_t size = grammar.vocabulary().size();
  std::vector<uint32_t> mask(grammar.vocabulary().mask_words());
  std::vector<std::string> texts;
  Sample out;
  for (int i = 0; i < most; ++i) {
    std::vector<int32_t> allowed;
    state.fill_mask(mask);
    for (size_t t = 0; t < size; ++t) {
      if (mask[t / 32] >> (t % 32) & 1) allowed.push_back(static_cast<int32_t>(t));
    }
    if (allowed.empty()) {
      ADD_FAILURE() << "nothing may follow: " << out.text;
      return out;
    }
    const int32_t token = allowed[random() % allowed.size()];
    if (!state.accept(token)) {
      ADD_FAILURE() << "the mask allows token " << token << ", accept() does not: " << out.text;
      return out;
    }
    if (token == kEndToken) {
      out.ended = true;
      return out;
    }
    out.text += std::string(grammar.vocabulary().token_text(token));
  }
  return out;
}

}  // namespace ktx::text

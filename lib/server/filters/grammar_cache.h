// Cache of compiled grammars, so that a schema sent with every request is compiled once, or refused
// once. Keeps the latest 64 within a limit of bytes (a large grammar with all its masks has 190
// MB), and the latest 64 refusals of at most 4 MiB. A grammar in use stays alive. Thread-safe.
#pragma once

#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "lib/server/http/json_fields.h"
#include "lib/support/result.h"
#include "lib/text/grammar/grammar.h"

namespace ktx::server {

// What an answer may look like.
struct Constraint {
  enum class Kind { None, JsonObject, JsonSchema, Gbnf, Regex, Choice, ToolCall, ToolAnswer };
  Kind kind = Kind::None;
  Json schema;                      // JsonSchema; ToolAnswer: of its answers, or null
  std::string text;                 // Gbnf, Regex
  std::vector<std::string> choice;  // Choice
  // ToolCall: {"name": ..., "arguments": {...}}; ToolAnswer: the generic form of calls and answers;
  // JsonSchema: bare calls of the Llama 3 form beside it
  std::vector<text::CallableTool> tools;
  bool or_call = false;  // JsonSchema, JsonObject: the answer may be a call instead
  std::string field;     // of the request, for messages
};

class GrammarCache {
 public:
  explicit GrammarCache(const text::Tokenizer& tokenizer, size_t most_bytes = size_t{256} << 20)
      : vocabulary_(text::GrammarVocabulary::create(tokenizer)), most_bytes_(most_bytes) {}

  // An error is the client's: a schema or grammar that is wrong.
  Result<text::Grammar> get(const Constraint& constraint);
  size_t size() const;
  size_t compiled() const;  // how many were compiled or refused, not found here

 private:
  // Forgets the oldest above the limits, but for the latest. With mutex_ held.
  void shrink();

  std::shared_ptr<const text::GrammarVocabulary> vocabulary_;
  const size_t most_bytes_;
  mutable std::mutex mutex_;
  std::vector<std::pair<std::string, text::Grammar>> kept_;  // the latest first
  std::deque<std::pair<std::string, Error>> refused_;        // the latest first
  size_t refused_bytes_ = 0;
  size_t compiled_ = 0;
};

}  // namespace ktx::server

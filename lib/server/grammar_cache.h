// Grammars that were compiled, so that a schema that comes with every request is
// compiled once. Thread-safe.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "lib/server/json_fields.h"
#include "lib/support/result.h"
#include "lib/text/grammar/grammar.h"

namespace ktx::server {

// What an answer may look like.
struct Constraint {
  enum class Kind { None, JsonObject, JsonSchema, Gbnf };
  Kind kind = Kind::None;
  Json schema;       // JsonSchema
  std::string gbnf;  // Gbnf
  // The answer is a tool call as bare JSON: {"name": ..., "arguments": {...}}.
  bool tool_call = false;
};

class GrammarCache {
 public:
  explicit GrammarCache(const text::Tokenizer& tokenizer)
      : vocabulary_(text::GrammarVocabulary::create(tokenizer)) {}

  // An error is the client's: a schema or grammar that is wrong.
  Result<text::Grammar> get(const Constraint& constraint);

 private:
  std::shared_ptr<const text::GrammarVocabulary> vocabulary_;
  std::mutex mutex_;
  std::vector<std::pair<std::string, text::Grammar>> kept_;  // the latest first
};

}  // namespace ktx::server

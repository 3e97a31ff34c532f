// Constrained output: which tokens may come next so that the answer follows a grammar.
//
//   auto vocabulary = GrammarVocabulary::create(tokenizer);          // once per model
//   Grammar g = KTX_TRY(Grammar::compile({GrammarKind::JsonSchema, schema}, vocabulary));
//   GrammarState state(g);                                           // one per answer
//   std::vector<uint32_t> mask(vocabulary->mask_words());
//   while (...) {
//     state.fill_mask(mask);       // bit t % 32 of word t / 32: may token t come next
//     int32_t token = sample(logits, mask);
//     state.accept(token);
//   }
//
// Sources: GBNF, JSON Schema (its supported part: json_schema.h), any JSON object, a regular
// expression, a list of texts, or tools of which one is called. Each becomes one automaton over
// bytes (grammar_automaton.h). The tokens that a state allows without looking at its stack are
// computed once and shared by all answers; only tokens that leave a recursive rule are tried on
// the stack.
//
// Safe for untrusted grammars and schemas: limits on size, depth and work are errors of
// compile(). A stack of more than 256 calls is cut (grammar_matcher.h): then fill_mask finds
// nothing and the answer ends like one that is too long. So does an answer whose text can be
// parsed in so many ways that following them takes too long: exhausted().
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "lib/support/result.h"

namespace ktx::text {

class Tokenizer;
namespace grammar {
struct Config;
struct GbnfTokens;
struct GrammarRules;
}  // namespace grammar

// The tokens as a grammar sees them; made once for a model, shared, immutable.
class GrammarVocabulary {
 public:
  // All tokens of the tokenizer, control tokens without a text; its end tokens may follow
  // where the grammar may end.
  static std::shared_ptr<const GrammarVocabulary> create(const Tokenizer& tokenizer);
  // Those without a text, by the name that a GBNF calls them: "<think>".
  using ControlTokens = std::unordered_map<std::string, int32_t>;
  // Token i has the bytes tokens[i]; one without bytes is allowed only where a grammar names
  // tokens.
  static std::shared_ptr<const GrammarVocabulary> create(std::vector<std::string> tokens,
                                                         std::vector<int32_t> end_tokens,
                                                         ControlTokens controls = {});

  size_t size() const;
  std::string_view token_text(int32_t token) const;  // of a token within size()
  size_t mask_words() const { return (size() + 31) / 32; }
  std::span<const int32_t> end_tokens() const;
  ~GrammarVocabulary();

 private:
  friend class Grammar;
  friend class GrammarState;
  struct Tables;
  grammar::GbnfTokens gbnf_tokens() const;
  explicit GrammarVocabulary(std::unique_ptr<const Tables> tables);
  std::unique_ptr<const Tables> tables_;
};

enum class GrammarKind { Gbnf, JsonSchema, JsonObject, Regex };

struct GrammarSource {
  GrammarKind kind = GrammarKind::JsonObject;
  std::string text;  // GBNF, a schema as JSON, or a regular expression; unused for JsonObject
};

// A tool that an answer may call (grammar/tool_call_schema.h).
struct CallableTool {
  std::string name;
  nlohmann::ordered_json parameters;  // a JSON schema
  std::string place;                  // of the schema, for messages: "tools[0].parameters"
};
// What an answer without a call follows.
struct AnswerFormat {
  nlohmann::ordered_json schema;
  std::string place;
};
// How a grammar has calls: bare, and nothing else may come; in an object of their own, beside
// texts; bare in the form of Llama 3, beside a format.
enum class CallForm { Forced, Generic, Llama3 };

// Immutable and cheap to copy; may be used by many threads at once.
class Grammar {
 public:
  // An error names what is wrong and where: line and column of a GBNF, keyword and
  // JSON path of a schema.
  static Result<Grammar> compile(const GrammarSource& source,
                                 std::shared_ptr<const GrammarVocabulary> vocabulary);
  static Result<Grammar> compile_schema(const nlohmann::ordered_json& schema,
                                        std::shared_ptr<const GrammarVocabulary> vocabulary);
  // One of these texts.
  static Result<Grammar> compile_choice(std::span<const std::string> texts,
                                        std::shared_ptr<const GrammarVocabulary> vocabulary);
  // A call of one of these tools (grammar/tool_call_schema.h). `format`: Generic without one has
  // texts, Llama3 needs one.
  static Result<Grammar> compile_tool_call(std::span<const CallableTool> tools,
                                           std::shared_ptr<const GrammarVocabulary> vocabulary,
                                           CallForm form = CallForm::Forced,
                                           const AnswerFormat* format = nullptr);

  const GrammarVocabulary& vocabulary() const;
  // Parts of a schema that the grammar ignores though they may be meant for it: unknown keywords.
  const std::vector<std::string>& notes() const;
  // The bytes of the automaton and of the masks found so far: they grow while it is used.
  size_t memory_bytes() const;

 private:
  friend class GrammarState;
  struct Compiled;
  // `schemas`: of the texts, where the rules need them beside (unique_items.h), and where in each
  // is what its `$ref`s are relative to, as a JSON pointer.
  static Result<Grammar> from_rules(const grammar::GrammarRules& rules,
                                    std::shared_ptr<const GrammarVocabulary> vocabulary,
                                    std::vector<nlohmann::ordered_json> schemas = {},
                                    std::vector<std::string> roots = {});
  explicit Grammar(std::shared_ptr<Compiled> compiled) : compiled_(std::move(compiled)) {}
  std::shared_ptr<Compiled> compiled_;
};

// One answer's place in the grammar. Copyable, so that text can be tried (speculation)
// and several answers can go on from one; not thread-safe.
class GrammarState {
 public:
  explicit GrammarState(const Grammar& grammar);
  GrammarState(const GrammarState&);
  GrammarState& operator=(const GrammarState&);
  ~GrammarState();

  // Goes on over a token; false, and nothing changes, when it may not come here. An end
  // token is accepted where the grammar may end; then nothing more is.
  bool accept(int32_t token);
  // The same for a text.
  bool accept(std::string_view text);

  // Sets the bits of all tokens that may come next and clears all others, of
  // mask_words() words. False when there is none.
  bool fill_mask(std::span<uint32_t> mask) const;

  // The text so far is complete; with must_end() nothing but an end may follow.
  bool may_end() const;
  bool must_end() const;
  // The last accept() or fill_mask() gave up: too many ways to read the text.
  bool exhausted() const;

 private:
  struct Place;
  // Adds where the text leads from here, and whether it may end there; false: nowhere.
  bool follow(std::string_view text, std::vector<grammar::Config>& next, bool& bottom);
  void move_to(std::vector<grammar::Config> configs, bool may_end);
  void drop_repeated(std::span<uint32_t> mask) const;
  std::shared_ptr<const Grammar::Compiled> compiled_;
  std::unique_ptr<Place> place_;
};

}  // namespace ktx::text

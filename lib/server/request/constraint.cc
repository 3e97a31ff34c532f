#include "lib/server/request/constraint.h"

#include <fmt/format.h>

#include <algorithm>

namespace ktx::server {
namespace {

constexpr size_t kMaxGrammars = 64;
constexpr size_t kMaxRefusedBytes = size_t{4} << 20;

class GrammarFilter final : public runtime::TokenFilter {
 public:
  GrammarFilter(text::Grammar grammar, bool ignore_end)
      : grammar_(std::move(grammar)),
        ignore_end_(ignore_end),
        state_(grammar_),
        bits_(grammar_.vocabulary().mask_words()) {}

  Result<runtime::TokenBits> allowed() override {
    prepare();
    if (possible_) return runtime::TokenBits(bits_);
    return Error{state_.exhausted()
                     ? "the grammar can be read in too many ways here; make its rules less "
                       "ambiguous"
                     : "the grammar allows no token here; its nesting may be too deep"};
  }

  void prepare() override {
    if (prepared_) return;
    possible_ = state_.fill_mask(bits_);
    if (ignore_end_ && possible_ && state_.may_end()) drop_end();
    prepared_ = true;
  }

  Status accept(int32_t id) override {
    prepared_ = false;
    if (state_.accept(id)) return {};
    return Error{state_.exhausted()
                     ? "the grammar can be read in too many ways here; make its rules less "
                       "ambiguous"
                     : "the grammar does not allow the token that was sampled"};
  }

 private:
  // Unless nothing else may come.
  void drop_end() {
    const std::span<const int32_t> ends = grammar_.vocabulary().end_tokens();
    for (const int32_t id : ends) bits_[static_cast<size_t>(id) / 32] &= ~(1u << (id % 32));
    if (std::any_of(bits_.begin(), bits_.end(), [](uint32_t word) { return word != 0; })) return;
    for (const int32_t id : ends) bits_[static_cast<size_t>(id) / 32] |= 1u << (id % 32);
  }

  const text::Grammar grammar_;
  const bool ignore_end_;
  text::GrammarState state_;
  std::vector<uint32_t> bits_;
  bool prepared_ = false;  // bits_ are those of the next token
  bool possible_ = false;  // some token may come
};

}  // namespace

ApiStatus make_filter(const ServedModel& model, const Constraint& constraint, bool ignore_end,
                      std::unique_ptr<runtime::TokenFilter>& filter,
                      std::vector<std::string>* notes) {
  if (constraint.kind == Constraint::Kind::None) return {};
  Result<text::Grammar> grammar = model.grammars->get(constraint);
  // A tool's place stands in the message.
  const std::string at = !constraint.tools.empty() ? "" : fmt::format("'{}': ", constraint.field);
  for (size_t i = 0; notes != nullptr && grammar && i < grammar->notes().size(); ++i) {
    notes->push_back(at + grammar->notes()[i]);
  }
  if (!grammar) {
    return ApiError{400, at + grammar.error().message, constraint.field, "invalid_schema"};
  }
  filter = std::make_unique<GrammarFilter>(grammar.take(), ignore_end);
  return {};
}

namespace {

// Kind and source in one key.
std::string key_of(const Constraint& constraint) {
  using Kind = Constraint::Kind;
  std::string key(1, static_cast<char>('0' + static_cast<int>(constraint.kind)));
  if (!constraint.schema.is_null()) key += dump(constraint.schema);
  if (constraint.kind == Kind::Choice) key += dump(Json(constraint.choice));
  for (const text::CallableTool& tool : constraint.tools) {
    // A refusal names the place, and each protocol has its own.
    key += dump(Json::array({tool.name, tool.parameters, tool.place, constraint.field}));
  }
  return key + constraint.text;
}

Result<text::Grammar> compile(const Constraint& constraint,
                              const std::shared_ptr<const text::GrammarVocabulary>& vocabulary) {
  using text::Grammar, text::GrammarKind, text::CallForm;
  const text::AnswerFormat format = {constraint.schema, fmt::format("'{}'", constraint.field)};
  switch (constraint.kind) {
    case Constraint::Kind::JsonSchema:
      if (!constraint.tools.empty()) {
        return Grammar::compile_tool_call(constraint.tools, vocabulary, CallForm::Llama3, &format);
      }
      return Grammar::compile_schema(constraint.schema, vocabulary);
    case Constraint::Kind::Choice:
      return Grammar::compile_choice(constraint.choice, vocabulary);
    case Constraint::Kind::ToolCall:
      return Grammar::compile_tool_call(constraint.tools, vocabulary);
    case Constraint::Kind::ToolAnswer:
      return Grammar::compile_tool_call(constraint.tools, vocabulary, CallForm::Generic,
                                        constraint.schema.is_null() ? nullptr : &format);
    case Constraint::Kind::Gbnf:
      return Grammar::compile({GrammarKind::Gbnf, constraint.text}, vocabulary);
    case Constraint::Kind::Regex:
      return Grammar::compile({GrammarKind::Regex, constraint.text}, vocabulary);
    default:
      return Grammar::compile({GrammarKind::JsonObject, ""}, vocabulary);
  }
}

}  // namespace

Result<text::Grammar> GrammarCache::get(const Constraint& constraint) {
  std::string key = key_of(constraint);
  {
    const std::lock_guard lock(mutex_);
    const auto it = std::find_if(kept_.begin(), kept_.end(),
                                 [&](const auto& item) { return item.first == key; });
    if (it != kept_.end()) {
      std::rotate(kept_.begin(), it, it + 1);
      shrink();  // their masks may have grown
      return kept_.front().second;
    }
    for (const auto& [refused, error] : refused_) {
      if (refused == key) return error;
    }
    ++compiled_;
  }
  Result<text::Grammar> grammar = compile(constraint, vocabulary_);
  const std::lock_guard lock(mutex_);
  if (!grammar) {
    refused_bytes_ += key.size();
    refused_.emplace_front(std::move(key), grammar.error());
    while (refused_.size() > kMaxGrammars || refused_bytes_ > kMaxRefusedBytes) {
      refused_bytes_ -= refused_.back().first.size();
      refused_.pop_back();
    }
    return grammar;
  }
  kept_.insert(kept_.begin(), {std::move(key), *grammar});
  shrink();
  return grammar;
}

void GrammarCache::shrink() {
  size_t bytes = 0, fitting = 0;
  for (const auto& [key, grammar] : kept_) {
    bytes += key.size() + grammar.memory_bytes();
    if (fitting > 0 && (bytes > most_bytes_ || fitting == kMaxGrammars)) break;
    ++fitting;
  }
  kept_.resize(fitting, kept_.front());
}

size_t GrammarCache::compiled() const {
  const std::lock_guard lock(mutex_);
  return compiled_;
}
size_t GrammarCache::size() const {
  const std::lock_guard lock(mutex_);
  return kept_.size();
}

}  // namespace ktx::server

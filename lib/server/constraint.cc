#include "lib/server/constraint.h"

#include <fmt/format.h>

#include <algorithm>

namespace ktx::server {
namespace {

constexpr size_t kMaxGrammars = 64;

class GrammarFilter final : public runtime::TokenFilter {
 public:
  explicit GrammarFilter(const text::Grammar& grammar)
      : state_(grammar), bits_(grammar.vocabulary().mask_words()) {}

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
    prepared_ = true;
    possible_ = state_.fill_mask(bits_);
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
  text::GrammarState state_;
  std::vector<uint32_t> bits_;
  bool prepared_ = false;  // bits_ are those of the next token
  bool possible_ = false;  // some token may come
};

}  // namespace

std::optional<ApiError> read_response_format(const Json& format, Constraint& constraint) {
  const std::string param = "response_format";
  const auto type = format.find("type");
  if (type == format.end() || !type->is_string()) {
    return ApiError{400, "'response_format' has no type", param, ""};
  }
  const std::string name = type->get<std::string>();
  if (name == "text") return std::nullopt;
  if (name == "json_object") {
    constraint.kind = Constraint::Kind::JsonObject;
    return std::nullopt;
  }
  if (name == "json_schema") {
    const auto wrapper = format.find("json_schema");
    const Json* schema = nullptr;
    if (wrapper != format.end() && wrapper->is_object() && wrapper->contains("schema")) {
      schema = &(*wrapper)["schema"];
    } else if (format.contains("schema")) {
      schema = &format["schema"];
    }
    if (schema == nullptr || !schema->is_object()) {
      return ApiError{400, "'response_format.json_schema.schema' is no object",
                      param + ".json_schema", ""};
    }
    constraint.kind = Constraint::Kind::JsonSchema;
    constraint.schema = *schema;
    return std::nullopt;
  }
  return ApiError{400,
                  fmt::format("'response_format.type' is {}, expected text, json_object or "
                              "json_schema",
                              show(*type)),
                  param + ".type", ""};
}

std::optional<ApiError> make_filter(const ServedModel& model, const Constraint& constraint,
                                    std::unique_ptr<runtime::TokenFilter>& filter) {
  if (constraint.kind == Constraint::Kind::None) return std::nullopt;
  Result<text::Grammar> grammar = model.grammars->get(constraint);
  if (!grammar) {
    const bool gbnf = constraint.kind == Constraint::Kind::Gbnf;
    return ApiError{400, grammar.error().message, gbnf ? "grammar" : "response_format",
                    "invalid_schema"};
  }
  filter = std::make_unique<GrammarFilter>(grammar.take());
  return std::nullopt;
}

Result<text::Grammar> GrammarCache::get(const Constraint& constraint) {
  // Kind and source in one key.
  std::string key;
  switch (constraint.kind) {
    case Constraint::Kind::Gbnf:
      key = "g" + constraint.gbnf;
      break;
    case Constraint::Kind::JsonSchema:
      key = "s" + dump(constraint.schema);
      break;
    default:
      key = "o";
  }
  {
    const std::lock_guard lock(mutex_);
    const auto it = std::find_if(kept_.begin(), kept_.end(),
                                 [&](const auto& item) { return item.first == key; });
    if (it != kept_.end()) {
      std::rotate(kept_.begin(), it, it + 1);
      shrink();  // their masks may have grown
      return kept_.front().second;
    }
  }
  Result<text::Grammar> grammar =
      constraint.kind == Constraint::Kind::JsonSchema
          ? text::Grammar::compile_schema(constraint.schema, vocabulary_)
          : text::Grammar::compile(
                {constraint.kind == Constraint::Kind::Gbnf ? text::GrammarKind::Gbnf
                                                           : text::GrammarKind::JsonObject,
                 constraint.gbnf},
                vocabulary_);
  if (!grammar) return grammar;
  const std::lock_guard lock(mutex_);
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

size_t GrammarCache::size() const {
  const std::lock_guard lock(mutex_);
  return kept_.size();
}

}  // namespace ktx::server

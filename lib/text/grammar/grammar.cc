#include "lib/text/grammar/grammar.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <mutex>
#include <optional>
#include <unordered_map>

#include "lib/text/exact_json.h"
#include "lib/text/grammar/gbnf.h"
#include "lib/text/grammar/grammar_automaton.h"
#include "lib/text/grammar/json_schema.h"
#include "lib/text/grammar/plain_texts.h"
#include "lib/text/grammar/schema_plain.h"
#include "lib/text/grammar/token_masks.h"
#include "lib/text/grammar/token_terminals.h"
#include "lib/text/grammar/tool_call_schema.h"
#include "lib/text/grammar/unique_items.h"
#include "lib/text/tokenizer/tokenizer.h"

namespace ktx::text {

using grammar::Config;

struct GrammarVocabulary::Tables {
  std::vector<std::string> texts;
  std::vector<int32_t> end_tokens;  // sorted
  grammar::TokenTexts tokens;
  std::unordered_map<std::string, int32_t> controls;  // those without a text, by their name
  std::vector<uint32_t> quoted, lists;  // tokens with ", and with [ and , (for unique_items.h)
  mutable std::once_flag terminals_made;
  mutable grammar::TokenTrie terminals;

  // Made for the first grammar that needs it.
  const grammar::TokenTrie* terminal_trie() const {
    std::call_once(terminals_made, [this] {
      terminals = grammar::build_terminal_trie(texts.size(),
                                               [this](int32_t token) { return is_end(token); });
    });
    return &terminals;
  }
  std::optional<int32_t> find(std::string_view name) const {
    const auto control = controls.find(std::string(name));
    if (control != controls.end()) return control->second;
    const auto text = std::find(texts.begin(), texts.end(), name);
    if (text == texts.end() || name.empty()) return std::nullopt;
    return static_cast<int32_t>(text - texts.begin());
  }
  bool is_end(int32_t token) const {
    return std::binary_search(end_tokens.begin(), end_tokens.end(), token);
  }
};

GrammarVocabulary::GrammarVocabulary(std::unique_ptr<const Tables> tables)
    : tables_(std::move(tables)) {}
GrammarVocabulary::~GrammarVocabulary() = default;
size_t GrammarVocabulary::size() const {
  return tables_->texts.size();
}
std::string_view GrammarVocabulary::token_text(int32_t token) const {
  return tables_->texts[static_cast<size_t>(token)];
}

std::span<const int32_t> GrammarVocabulary::end_tokens() const {
  return tables_->end_tokens;
}

std::shared_ptr<const GrammarVocabulary> GrammarVocabulary::create(std::vector<std::string> tokens,
                                                                   std::vector<int32_t> end_tokens,
                                                                   ControlTokens controls) {
  auto tables = std::make_unique<Tables>();
  tables->texts = std::move(tokens);
  tables->controls = std::move(controls);
  tables->end_tokens = std::move(end_tokens);
  std::sort(tables->end_tokens.begin(), tables->end_tokens.end());
  tables->tokens = grammar::make_token_texts(tables->texts,
                                             [&](int32_t token) { return tables->is_end(token); });
  const size_t words = (tables->texts.size() + 31) / 32;
  tables->quoted.resize(words);
  tables->lists.resize(words);
  for (size_t i = 0; i < tables->texts.size(); ++i) {
    const std::string& text = tables->texts[i];
    const auto has = [&](char byte) { return text.find(byte) != std::string::npos; };
    if (has('"')) tables->quoted[i / 32] |= 1u << (i % 32);
    if (has('[') && has(',')) tables->lists[i / 32] |= 1u << (i % 32);
  }
  return std::shared_ptr<const GrammarVocabulary>(new GrammarVocabulary(std::move(tables)));
}

std::shared_ptr<const GrammarVocabulary> GrammarVocabulary::create(const Tokenizer& tokenizer) {
  std::vector<std::string> texts(tokenizer.size());
  std::vector<int32_t> ends;
  ControlTokens controls;
  for (int32_t id = 0; id < tokenizer.size(); ++id) {
    if (tokenizer.is_eog(id)) ends.push_back(id);
    if (tokenizer.is_control(id)) {
      controls.emplace(tokenizer.piece(id), id);
    } else {
      texts[id] = tokenizer.piece(id);
    }
  }
  return create(std::move(texts), std::move(ends), std::move(controls));
}

struct Grammar::Compiled {
  std::shared_ptr<const GrammarVocabulary> vocabulary;
  grammar::Automaton automaton;
  const grammar::TokenTrie* terminals = nullptr;  // where the grammar has such
  mutable grammar::TokenMaskCache masks;
  // The schemas of the texts. Empty: not needed.
  std::vector<nlohmann::ordered_json> schemas;
  grammar::SchemaPlaces places;
  std::vector<std::string> notes;

  Compiled(std::shared_ptr<const GrammarVocabulary> v, grammar::Automaton a)
      : vocabulary(std::move(v)), automaton(std::move(a)), masks(automaton.states.size()) {
    for (uint32_t s = 0; s < automaton.states.size() && terminals == nullptr; ++s) {
      if (automaton.next(s, grammar::kTokenMark) == grammar::kDead) continue;
      terminals = vocabulary->tables_->terminal_trie();
    }
    // Computed here, in the thread that compiles the grammar, and not with the first mask.
    const auto& tables = *vocabulary->tables_;
    for (const grammar::ByteSet& set : automaton.run_sets) {
      tables.tokens.runs->get(tables.tokens.trie, tables.texts.size(), set);
    }
  }
};

Result<Grammar> Grammar::from_rules(const grammar::GrammarRules& rules,
                                    std::shared_ptr<const GrammarVocabulary> vocabulary,
                                    std::vector<nlohmann::ordered_json> schemas,
                                    std::vector<std::string> roots) {
  auto compiled =
      std::make_shared<Compiled>(std::move(vocabulary), KTX_TRY(grammar::build_automaton(rules)));
  compiled->notes = rules.notes;
  if (rules.distinct_items) {
    compiled->schemas = std::move(schemas);
    for (size_t i = 0; i < compiled->schemas.size(); ++i) {
      nlohmann::ordered_json& schema = compiled->schemas[i];
      const auto root = nlohmann::ordered_json::json_pointer(roots.empty() ? "" : roots[i]);
      schema[root] = grammar::plain_schema(nlohmann::ordered_json(schema[root]));
      compiled->places.push_back({&schema, &schema[root]});
    }
  }
  return Grammar(std::move(compiled));
}

Result<Grammar> Grammar::compile(const GrammarSource& source,
                                 std::shared_ptr<const GrammarVocabulary> vocabulary) {
  grammar::GrammarRules rules;
  switch (source.kind) {
    case GrammarKind::Gbnf:
      rules = KTX_TRY(grammar::parse_gbnf(source.text, vocabulary->gbnf_tokens()));
      break;
    case GrammarKind::JsonSchema:
      rules = KTX_TRY(grammar::parse_json_schema(source.text));
      if (rules.distinct_items) {
        return from_rules(rules, std::move(vocabulary), {parse_json(source.text)});
      }
      break;
    case GrammarKind::JsonObject:
      rules = grammar::any_json_object();
      break;
    case GrammarKind::Regex:
      rules = KTX_TRY(grammar::regex_rules(source.text));
      break;
  }
  return from_rules(rules, std::move(vocabulary));
}

Result<Grammar> Grammar::compile_schema(const nlohmann::ordered_json& schema,
                                        std::shared_ptr<const GrammarVocabulary> vocabulary) {
  return from_rules(KTX_TRY(grammar::schema_rules(schema)), std::move(vocabulary), {schema});
}

Result<Grammar> Grammar::compile_choice(std::span<const std::string> texts,
                                        std::shared_ptr<const GrammarVocabulary> vocabulary) {
  return from_rules(KTX_TRY(grammar::choice_rules(texts)), std::move(vocabulary));
}

Result<Grammar> Grammar::compile_tool_call(std::span<const CallableTool> tools,
                                           std::shared_ptr<const GrammarVocabulary> vocabulary,
                                           CallForm form, const AnswerFormat* format) {
  using Json = nlohmann::ordered_json;
  std::vector<Json> schemas;
  std::vector<std::string> roots;
  const auto add = [&](Json schema, const std::string& root) {
    schemas.push_back(std::move(schema));
    roots.push_back(root);
  };
  const std::string key(grammar::arguments_key(form)), arguments = "/properties/" + key;
  for (const CallableTool& tool : tools) {
    const Json call = {{"properties", {{key, tool.parameters}}}};
    if (form != CallForm::Generic) {
      add(call, arguments);
      continue;
    }
    add({{"properties", {{"tool_call", call}}}}, "/properties/tool_call" + arguments);
    add({{"properties", {{"tool_calls", {{"items", call}}}}}},
        "/properties/tool_calls/items" + arguments);
  }
  if (format != nullptr && form == CallForm::Generic) {
    add({{"properties", {{"response", format->schema}}}}, "/properties/response");
  } else if (format != nullptr) {
    add(format->schema, "");
  }
  const auto compiled = [&](std::span<const CallableTool> callable,
                            const std::string& note) -> Result<Grammar> {
    grammar::GrammarRules rules = KTX_TRY(grammar::tool_call_rules(callable, form, format));
    if (!note.empty()) rules.notes.push_back(note);
    return from_rules(rules, vocabulary, schemas, roots);
  };
  Result<Grammar> out = compiled(tools, "");
  if (out || form == CallForm::Forced) return out;
  // Together they are too much for one automaton, though none has to be called.
  std::vector<CallableTool> open(tools.begin(), tools.end());
  for (CallableTool& tool : open) tool.parameters = {{"type", "object"}, {"minProperties", 0}};
  Result<Grammar> looser = compiled(
      open, fmt::format("{}; the arguments of all tools are any object", out.error().message));
  return looser ? looser : out;
}

grammar::GbnfTokens GrammarVocabulary::gbnf_tokens() const {
  return {static_cast<int64_t>(size()),
          [this](std::string_view name) { return tables_->find(name); },
          [this](int32_t token) { return tables_->is_end(token); }};
}

const GrammarVocabulary& Grammar::vocabulary() const {
  return *compiled_->vocabulary;
}
const std::vector<std::string>& Grammar::notes() const {
  return compiled_->notes;
}
size_t Grammar::memory_bytes() const {
  return compiled_->automaton.memory_bytes() + compiled_->masks.memory_bytes();
}

struct GrammarState::Place {
  grammar::Matcher matcher;
  std::vector<Config> configs;
  bool may_end = false;
  bool ended = false;
  std::optional<grammar::UniqueItems> items;  // where some must differ
};

GrammarState::GrammarState(const Grammar& grammar)
    : compiled_(grammar.compiled_),
      place_(std::make_unique<Place>(
          Place{grammar::Matcher(compiled_->automaton), {}, false, false, {}})) {
  place_->may_end = place_->matcher.enter({compiled_->automaton.start, 0}, place_->configs, 0);
  if (!compiled_->places.empty()) place_->items.emplace(compiled_->places);
}
GrammarState::GrammarState(const GrammarState& other)
    : compiled_(other.compiled_), place_(std::make_unique<Place>(*other.place_)) {}
GrammarState& GrammarState::operator=(const GrammarState& other) {
  compiled_ = other.compiled_;
  *place_ = *other.place_;
  return *this;
}
GrammarState::~GrammarState() = default;

bool GrammarState::accept(int32_t token) {
  const auto& tables = *compiled_->vocabulary->tables_;
  if (tables.is_end(token)) {
    if (!may_end()) return false;
    place_->ended = true;
    return true;
  }
  if (token < 0 || static_cast<size_t>(token) >= tables.texts.size()) return false;
  const std::string_view text = tables.texts[token];
  const bool has_text = !text.empty() && !grammar::has_token_mark(text);
  if (compiled_->terminals == nullptr) return has_text && accept(text);
  // Both readings may go on.
  if (place_->ended) return false;
  place_->matcher.begin_work();
  const size_t frames = place_->matcher.frame_count();
  std::vector<Config> next;
  bool bottom = false;
  bool taken = has_text && follow(text, next, bottom);
  taken |= follow(grammar::token_terminal(token), next, bottom);
  if (exhausted()) taken = false;
  if (taken) {
    move_to(std::move(next), bottom);
  } else {
    place_->matcher.drop_frames(frames);
  }
  return taken;
}

bool GrammarState::accept(std::string_view text) {
  if (place_->ended) return false;
  if (text.empty()) return true;
  if (grammar::has_token_mark(text)) return false;
  place_->matcher.begin_work();
  const size_t frames = place_->matcher.frame_count();
  std::vector<Config> next;
  bool bottom = false;
  std::optional<grammar::UniqueItems> read;
  if (place_->items) read.emplace(place_->items->branch());
  if ((read && !read->take(text)) || !follow(text, next, bottom)) {
    place_->matcher.drop_frames(frames);
    return false;
  }
  move_to(std::move(next), bottom);
  if (read) place_->items->keep(std::move(*read));
  return true;
}

// Clears the bits of tokens that would end an item for the second time.
void GrammarState::drop_repeated(std::span<uint32_t> mask) const {
  const auto& tables = *compiled_->vocabulary->tables_;
  const grammar::UniqueItems& items = *place_->items;
  for (size_t w = 0; w < mask.size(); ++w) {
    uint32_t word = mask[w];
    if (!items.watches()) word &= tables.lists[w];
    if (items.in_string()) word &= tables.quoted[w];
    for (; word != 0; word &= word - 1) {
      const size_t token = w * 32 + static_cast<size_t>(std::countr_zero(word));
      if (!items.branch().take(tables.texts[token])) mask[w] &= ~(1u << (token % 32));
    }
  }
}

bool GrammarState::follow(std::string_view text, std::vector<Config>& next, bool& bottom) {
  grammar::Matcher& matcher = place_->matcher;
  std::vector<Config> configs = place_->configs;
  size_t begin = 0;
  bool ends = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const size_t end = configs.size();
    ends = matcher.step(configs, begin, end, static_cast<uint8_t>(text[i]));
    begin = end;
    const bool over = configs.size() == end;  // nothing can follow: right behind the last byte
    if (exhausted() || (over && !(ends && i + 1 == text.size()))) {
      // A way that was dropped might have accepted the text.
      if (matcher.dropped()) matcher.exhaust();
      return false;
    }
  }
  for (size_t i = begin; i < configs.size(); ++i) {
    if (std::find(next.begin(), next.end(), configs[i]) == next.end()) next.push_back(configs[i]);
  }
  bottom |= ends;
  return true;
}

void GrammarState::move_to(std::vector<Config> configs, bool may_end) {
  place_->configs = std::move(configs);
  place_->may_end = may_end;
  place_->matcher.compact(place_->configs);
}

bool GrammarState::may_end() const {
  return place_->may_end && !place_->ended;
}
bool GrammarState::must_end() const {
  return place_->ended || place_->configs.empty();
}
bool GrammarState::exhausted() const {
  return place_->matcher.exhausted();
}

bool GrammarState::fill_mask(std::span<uint32_t> mask) const {
  const auto& tables = *compiled_->vocabulary->tables_;
  KTX_ASSERT(mask.size() == compiled_->vocabulary->mask_words());
  std::fill(mask.begin(), mask.end(), 0u);
  if (place_->ended) return false;
  grammar::Matcher& matcher = place_->matcher;
  matcher.begin_work();
  const size_t frames = matcher.frame_count();
  std::vector<Config> behind;
  bool complete = true;
  for (const Config& config : place_->configs) {
    const bool counted =
        compiled_->automaton.again[config.state] != grammar::kDead && config.frame != 0 &&
        matcher.items_left(config.frame) <= static_cast<int64_t>(tables.tokens.longest);
    if (counted) {
      grammar::mark_counted_tokens(compiled_->automaton, matcher, config, tables.tokens,
                                   compiled_->terminals, mask);
      continue;
    }
    const auto allowed = compiled_->masks.get(compiled_->automaton, config.state, tables.tokens,
                                              compiled_->terminals);
    complete = !allowed->exhausted && !matcher.exhausted();
    if (!complete) break;
    for (size_t w = 0; w < allowed->bits.size(); ++w) mask[w] |= allowed->bits[w];
    for (const int32_t token : allowed->list) mask[token / 32] |= 1u << (token % 32);
    if (config.frame == 0 || allowed->rests.empty()) continue;
    behind.clear();
    matcher.leave(config.frame, behind);
    grammar::mark_tokens(compiled_->automaton, matcher, behind, allowed->rests, mask);
    matcher.drop_frames(frames);
  }
  if (!complete || matcher.exhausted()) {
    matcher.exhaust();
    std::fill(mask.begin(), mask.end(), 0u);
    return false;
  }
  if (place_->items) drop_repeated(mask);
  if (may_end()) {
    for (const int32_t token : tables.end_tokens) mask[token / 32] |= 1u << (token % 32);
  }
  return std::any_of(mask.begin(), mask.end(), [](uint32_t word) { return word != 0; });
}

}  // namespace ktx::text

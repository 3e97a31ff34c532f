#include "lib/text/grammar/grammar.h"

#include <algorithm>

#include "lib/text/grammar/gbnf.h"
#include "lib/text/grammar/grammar_automaton.h"
#include "lib/text/grammar/json_schema.h"
#include "lib/text/grammar/plain_texts.h"
#include "lib/text/grammar/token_masks.h"
#include "lib/text/grammar/tool_call_schema.h"
#include "lib/text/tokenizer/tokenizer.h"

namespace ktx::text {

using grammar::Config;

struct GrammarVocabulary::Tables {
  std::vector<std::string> texts;
  std::vector<int32_t> end_tokens;  // sorted
  grammar::TokenTexts tokens;

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

std::shared_ptr<const GrammarVocabulary> GrammarVocabulary::create(
    std::vector<std::string> tokens, std::vector<int32_t> end_tokens) {
  auto tables = std::make_unique<Tables>();
  tables->texts = std::move(tokens);
  tables->end_tokens = std::move(end_tokens);
  std::sort(tables->end_tokens.begin(), tables->end_tokens.end());
  tables->tokens = grammar::make_token_texts(tables->texts,
                                             [&](int32_t token) { return tables->is_end(token); });
  return std::shared_ptr<const GrammarVocabulary>(new GrammarVocabulary(std::move(tables)));
}

std::shared_ptr<const GrammarVocabulary> GrammarVocabulary::create(const Tokenizer& tokenizer) {
  std::vector<std::string> texts(tokenizer.size());
  std::vector<int32_t> ends;
  for (int32_t id = 0; id < tokenizer.size(); ++id) {
    if (tokenizer.is_eog(id)) ends.push_back(id);
    if (!tokenizer.is_control(id)) texts[id] = tokenizer.piece(id);
  }
  return create(std::move(texts), std::move(ends));
}

struct Grammar::Compiled {
  std::shared_ptr<const GrammarVocabulary> vocabulary;
  grammar::Automaton automaton;
  mutable grammar::TokenMaskCache masks;

  Compiled(std::shared_ptr<const GrammarVocabulary> v, grammar::Automaton a)
      : vocabulary(std::move(v)), automaton(std::move(a)), masks(automaton.states.size()) {
    // Computed here, in the thread that compiles the grammar, and not with the first mask.
    const auto& tables = *vocabulary->tables_;
    for (const grammar::ByteSet& set : automaton.run_sets) {
      tables.tokens.runs->get(tables.tokens.trie, tables.texts.size(), set);
    }
  }
};

Result<Grammar> Grammar::from_rules(const grammar::GrammarRules& rules,
                                    std::shared_ptr<const GrammarVocabulary> vocabulary) {
  return Grammar(
      std::make_shared<Compiled>(std::move(vocabulary), KTX_TRY(grammar::build_automaton(rules))));
}

Result<Grammar> Grammar::compile(const GrammarSource& source,
                                 std::shared_ptr<const GrammarVocabulary> vocabulary) {
  grammar::GrammarRules rules;
  switch (source.kind) {
    case GrammarKind::Gbnf:
      rules = KTX_TRY(grammar::parse_gbnf(source.text));
      break;
    case GrammarKind::JsonSchema:
      rules = KTX_TRY(grammar::parse_json_schema(source.text));
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
  return from_rules(KTX_TRY(grammar::schema_rules(schema)), std::move(vocabulary));
}

Result<Grammar> Grammar::compile_choice(std::span<const std::string> texts,
                                        std::shared_ptr<const GrammarVocabulary> vocabulary) {
  return from_rules(KTX_TRY(grammar::choice_rules(texts)), std::move(vocabulary));
}

Result<Grammar> Grammar::compile_tool_call(std::span<const CallableTool> tools,
                                           std::shared_ptr<const GrammarVocabulary> vocabulary) {
  return from_rules(KTX_TRY(grammar::tool_call_rules(tools)), std::move(vocabulary));
}

const GrammarVocabulary& Grammar::vocabulary() const {
  return *compiled_->vocabulary;
}
size_t Grammar::memory_bytes() const {
  return compiled_->automaton.memory_bytes() + compiled_->masks.memory_bytes();
}

struct GrammarState::Place {
  grammar::Matcher matcher;
  std::vector<Config> configs;
  bool may_end = false;
  bool ended = false;
};

GrammarState::GrammarState(const Grammar& grammar)
    : compiled_(grammar.compiled_),
      place_(std::make_unique<Place>(Place{grammar::Matcher(compiled_->automaton), {}})) {
  place_->may_end = place_->matcher.enter({compiled_->automaton.start, 0}, place_->configs, 0);
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
  return !tables.texts[token].empty() && accept(std::string_view(tables.texts[token]));
}

bool GrammarState::accept(std::string_view text) {
  if (place_->ended) return false;
  if (text.empty()) return true;
  const size_t frames = place_->matcher.frame_count();
  place_->matcher.begin_work();
  std::vector<Config> configs = place_->configs;
  size_t begin = 0;
  bool bottom = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const size_t end = configs.size();
    bottom = place_->matcher.step(configs, begin, end, static_cast<uint8_t>(text[i]));
    begin = end;
    const bool over = configs.size() == end;  // nothing can follow: right behind the last byte
    if (exhausted() || (over && !(bottom && i + 1 == text.size()))) {
      // A way that was dropped might have accepted the text.
      if (place_->matcher.dropped()) place_->matcher.exhaust();
      place_->matcher.drop_frames(frames);
      return false;
    }
  }
  place_->configs.assign(configs.begin() + static_cast<ptrdiff_t>(begin), configs.end());
  place_->may_end = bottom;
  place_->matcher.compact(place_->configs);
  return true;
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
    const auto allowed = compiled_->masks.get(compiled_->automaton, config.state, tables.tokens);
    complete = !allowed->exhausted && !matcher.exhausted();
    if (!complete) break;
    for (size_t w = 0; w < allowed->bits.size(); ++w) mask[w] |= allowed->bits[w];
    for (const int32_t token : allowed->list) mask[token / 32] |= 1u << (token % 32);
    if (config.frame == 0 || allowed->rests.empty()) continue;
    behind.clear();
    matcher.enter(matcher.below(config.frame), behind, 0);
    grammar::mark_tokens(compiled_->automaton, matcher, behind, allowed->rests, mask);
    matcher.drop_frames(frames);
  }
  if (!complete || matcher.exhausted()) {
    matcher.exhaust();
    std::fill(mask.begin(), mask.end(), 0u);
    return false;
  }
  if (may_end()) {
    for (const int32_t token : tables.end_tokens) mask[token / 32] |= 1u << (token % 32);
  }
  return std::any_of(mask.begin(), mask.end(), [](uint32_t word) { return word != 0; });
}

}  // namespace ktx::text

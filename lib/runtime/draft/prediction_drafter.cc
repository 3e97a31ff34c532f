#include "lib/runtime/draft/prediction_drafter.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "lib/runtime/draft/engine_drafter.h"

namespace ktx::runtime {
namespace {

// Rows of hidden states of a text that wait to be read: few enough for the caches of a core.
constexpr int64_t kMostHeld = 32;
// Missing rows in front of those of a text that are taken as zeros; behind more the layer's text
// begins anew. The prefix caches of the model and of the layer leave one.
constexpr int64_t kMostMissing = 16;

// A text as the layer has it. Token number p is read with the hidden states of p - 1.
struct PredictionText : EngineText {
  PredictionText(Engine& engine, const std::string& owner, Sampler sampler, int64_t first,
                 int64_t width)
      : EngineText(engine, owner, std::move(sampler)), first(first), width(width), begin(first) {}
  // A text that goes on later finds what was computed, where it was read from its beginning.
  ~PredictionText() override {
    if (is_whole()) engine.cache().retire(std::move(sequence), held);
  }

  bool is_whole() const { return begin == first; }
  int64_t next() const { return begin + std::ssize(held); }  // the token that is read next
  int64_t rows_end() const { return rows_begin + std::ssize(rows) / width; }
  // Where nothing can be read: from the first token that there is a hidden state for.
  void begin_anew() {
    truncate(0);
    begin = rows_begin + 1;
  }
  void lose() override { begin_anew(); }

  const int64_t first;     // the token that a whole text begins with
  const int64_t width;     // of a row
  int64_t begin = 0;       // the token of the text that `held` begins with
  int64_t rows_begin = 0;  // the token that the first row is the model's hidden state of
  std::vector<float> rows;
  std::vector<int32_t> drafted;  // `held` in the numbers of the logits, where a sampler asks for it
};

class PredictionDrafter : public EngineDrafter {
 public:
  PredictionDrafter(std::unique_ptr<Engine> engine, int64_t model_vocab)
      : EngineDrafter(std::move(engine), model_vocab),
        is_head_(!engine_->plan().facts.hidden_values.empty()),
        width_(engine_->plan().facts.given_states()),
        given_width_(engine_->plan().facts.given_width),
        tokens_(engine_->plan().draft_tokens) {
    if (tokens_.empty()) return;
    logits_.assign(static_cast<size_t>(engine_->vocab_size()), -1);
    for (size_t i = 0; i < tokens_.size(); ++i) {
      logits_[static_cast<size_t>(tokens_[i])] = static_cast<int32_t>(i);
    }
  }

  std::string_view name() const override {
    return is_head_ ? "draft head" : "multi-token prediction";
  }
  std::unique_ptr<DraftText> begin(const std::string& owner,
                                   const SamplingOptions& sampling) override;
  bool reads_hidden() const override { return true; }
  Status take_hidden(DraftText& text, std::span<const int32_t> tokens, int64_t begin,
                     std::span<const float> rows) override;
  int64_t behind(DraftText& text, std::span<const int32_t> tokens) override;
  Status read(std::span<DraftItem> items, int64_t tokens) override;
  Status draft(std::span<DraftItem> items) override;

 private:
  void follow(PredictionText& text, std::span<const int32_t> tokens);
  int64_t readable(const PredictionText& text, std::span<const int32_t> tokens) const;
  Open next_tokens(PredictionText& text, std::span<const int32_t> tokens, int64_t count) const;
  Status read_text(PredictionText& text, std::span<const int32_t> tokens, int64_t& budget);
  void drop_read_rows(PredictionText& text) const;
  int32_t logit_of(int32_t token) const {
    const bool known = token >= 0 && token < std::ssize(logits_);
    return known ? logits_[static_cast<size_t>(token)] : -1;
  }
  std::optional<Drafted> sample(EngineText& text, int64_t row) const override;
  Status take_hidden_of(int64_t row, int64_t token, std::vector<float>& hidden) const override;

  const bool is_head_;                     // it keeps the states for draft tokens further on itself
  const int64_t width_;                    // of the model's hidden states of a token, in floats
  const int64_t given_width_;              // of what comes with a token: those, and the head's own
  const std::span<const int32_t> tokens_;  // by logit; empty: all
  std::vector<int32_t> logits_;            // by token; -1: none
};

std::unique_ptr<DraftText> PredictionDrafter::begin(const std::string& owner,
                                                    const SamplingOptions& sampling) {
  SamplingOptions options = sampling;
  if (!tokens_.empty()) {  // those are the model's tokens
    for (auto& bias : options.logit_bias) bias.first = logit_of(bias.first);
    std::erase_if(options.logit_bias, [](const auto& bias) { return bias.first < 0; });
    options.dry.breakers.clear();
  }
  const int64_t logits = engine_->plan().facts.output_width();
  return std::make_unique<PredictionText>(*engine_, owner, draft_sampler(options, logits),
                                          is_head_ ? 1 : 0, width_);
}

// Those from `begin` on stand for what was there before: the text may have gone on otherwise.
Status PredictionDrafter::take_hidden(DraftText& given, std::span<const int32_t> tokens,
                                      int64_t begin, std::span<const float> rows) {
  auto& text = static_cast<PredictionText&>(given);
  if (begin < text.rows_begin || begin > text.rows_end()) text.rows.clear();
  if (text.rows.empty()) text.rows_begin = begin;
  text.rows.resize(static_cast<size_t>((begin - text.rows_begin) * width_));
  text.rows.insert(text.rows.end(), rows.begin(), rows.end());
  if (text.rows_end() - text.rows_begin < kMostHeld) return {};
  int64_t all = std::ssize(tokens);
  KTX_TRY(read_text(text, tokens, all));
  // Those of a prompt take many times what answers need.
  if (text.rows.capacity() > static_cast<size_t>(4 * kMostHeld * width_)) {
    text.rows.shrink_to_fit();
  }
  return {};
}

// Makes what is held a beginning of `tokens` that can go on: hidden states for the next token are
// there, unless they are still to come. The last token is read in any case.
void PredictionDrafter::follow(PredictionText& text, std::span<const int32_t> tokens) {
  const int64_t count = std::ssize(tokens);
  const auto from = tokens.subspan(static_cast<size_t>(std::min(text.begin, count)));
  const auto same =
      std::mismatch(text.held.begin(), text.held.end(), from.begin(), from.end()).first;
  text.truncate(
      std::max<int64_t>(0, std::min<int64_t>(same - text.held.begin(), std::ssize(from) - 1)));
  if (text.held.empty()) text.begin = text.first;
  if (text.held.empty() && text.rows_begin > 0) {
    const auto whole = tokens.subspan(static_cast<size_t>(std::min(text.first, count)));
    const PrefixHit hit = engine_->cache().reuse(text.sequence, whole);
    text.held.assign(whole.begin(), whole.begin() + hit.tokens);
  }
  const int64_t missing = text.rows_begin - std::max<int64_t>(text.next() - 1, 0);
  if (missing > (text.held.empty() ? 0 : kMostMissing)) text.begin_anew();
}

// How many tokens can be read, the last one left out.
int64_t PredictionDrafter::readable(const PredictionText& text,
                                    std::span<const int32_t> tokens) const {
  const int64_t end = std::min(text.rows_end() + 1, std::ssize(tokens) - 1);
  return std::max<int64_t>(0, std::min(end, engine_->ctx()) - text.next());
}

int64_t PredictionDrafter::behind(DraftText& given, std::span<const int32_t> tokens) {
  auto& text = static_cast<PredictionText&>(given);
  follow(text, tokens);
  const int64_t count = readable(text, tokens);
  return count < kNearTokens ? 0 : count;
}

PredictionDrafter::Open PredictionDrafter::next_tokens(PredictionText& text,
                                                       std::span<const int32_t> tokens,
                                                       int64_t count) const {
  Open open;
  open.text = &text;
  open.hidden.assign(static_cast<size_t>(count * given_width_), 0.0f);
  for (int64_t i = 0; i < count; ++i) {
    const int64_t token = text.next() + i;
    open.next.push_back(tokens[static_cast<size_t>(token)]);
    const int64_t row = token - 1 - text.rows_begin;
    if (row < 0) continue;  // nothing is known of it
    const auto from = text.rows.begin() + row * width_;
    std::copy(from, from + width_, open.hidden.begin() + i * given_width_);
  }
  return open;
}

// Reads of one text what can be read, at most `budget` tokens, of which it takes them.
Status PredictionDrafter::read_text(PredictionText& text, std::span<const int32_t> tokens,
                                    int64_t& budget) {
  follow(text, tokens);
  while (budget > 0) {
    const int64_t count = std::min({readable(text, tokens), budget, engine_->chunk_tokens()});
    if (count <= 0) break;
    std::vector<Open> open;
    open.push_back(next_tokens(text, tokens, count));
    KTX_TRY(forward(open, Want::None));
    if (open.empty()) break;
    drop_read_rows(text);
    budget -= count;
    if (text.is_whole()) engine_->cache().keep(text.sequence, text.held);
  }
  return {};
}

Status PredictionDrafter::read(std::span<DraftItem> items, int64_t tokens) {
  for (DraftItem& item : items) {
    auto& text = static_cast<PredictionText&>(*item.text);
    if (tokens > 0 && behind(text, item.tokens) > 0) KTX_TRY(read_text(text, item.tokens, tokens));
  }
  return {};
}

void PredictionDrafter::drop_read_rows(PredictionText& text) const {
  const int64_t read = std::min(text.next() - 1, text.rows_end()) - text.rows_begin;
  if (read <= 0) return;
  text.rows.erase(text.rows.begin(), text.rows.begin() + read * width_);
  text.rows_begin += read;
}

std::optional<EngineDrafter::Drafted> PredictionDrafter::sample(EngineText& given,
                                                                int64_t row) const {
  auto& text = static_cast<PredictionText&>(given);
  const bool needs_history = !tokens_.empty() && text.sampler.best_needed() < 0;
  text.drafted.clear();
  for (size_t i = 0; needs_history && i < text.held.size(); ++i) {
    text.drafted.push_back(logit_of(text.held[i]));
  }
  const std::optional<int32_t> id = text.sample(row, tokens_.empty() ? text.held : text.drafted);
  if (!id) return std::nullopt;
  const int32_t token = tokens_.empty() ? *id : tokens_[static_cast<size_t>(*id)];
  return Drafted{token, token};
}

Status PredictionDrafter::take_hidden_of(int64_t row, int64_t token,
                                         std::vector<float>& hidden) const {
  hidden.assign(static_cast<size_t>(given_width_), 0.0f);
  if (!is_head_) return engine_->hidden(row, hidden);
  const std::span<const float> own = KTX_TRY(engine_->hidden_of_tokens(token, 1));
  std::ranges::copy(own, hidden.begin() + width_);
  return {};
}

Status PredictionDrafter::draft(std::span<DraftItem> items) {
  const Timer timer;
  first_seconds_ = 0;
  std::vector<Open> texts;
  int64_t left = engine_->chunk_tokens();
  for (DraftItem& item : items) {
    item.draft_tokens.clear();
    auto& text = static_cast<PredictionText&>(*item.text);
    const bool near = behind(text, item.tokens) == 0;
    const int64_t total = std::ssize(item.tokens);
    const int64_t count = total - text.next();
    item.most = std::min(item.most, engine_->ctx() - total);
    // The hidden state of the last token but one must be there; and those that do not fit a step
    // wait for the next pass.
    if (!near || item.most <= 0 || count <= 0 || text.rows_end() < total - 1 || count > left) {
      continue;
    }
    if (std::ssize(texts) == engine_->max_batch()) break;
    left -= count;
    texts.push_back(next_tokens(text, item.tokens, count));
    texts.back().item = &item;
    text.sampler.set_state(item.sampler->state());
  }
  KTX_TRY(forward(texts, Want::Last));
  std::vector<std::pair<EngineText*, int64_t>> read;  // what comes from the model's states
  for (const Open& open : texts) {
    read.push_back({open.text, std::ssize(open.text->held)});
    drop_read_rows(static_cast<PredictionText&>(*open.text));
  }
  KTX_TRY(draft_on(texts, timer));
  for (const auto& [text, length] : read) text->truncate(std::min(length, std::ssize(text->held)));
  return {};
}

}  // namespace

Result<std::unique_ptr<Drafter>> make_prediction_drafter(std::unique_ptr<Engine> engine,
                                                         const Engine& model) {
  const plan::PlanFacts& facts = engine->plan().facts;
  if (!facts.reads_hidden()) {
    return Error{
        fmt::format("{} is a model and cannot read another's hidden states", facts.family)};
  }
  if (facts.given_states() != model.kept_width()) {
    return Error{
        fmt::format("the drafter reads {} hidden values of a token, and the model's plan "
                    "keeps {}; compile them together",
                    facts.given_states(), model.kept_width())};
  }
  return std::unique_ptr<Drafter>(
      std::make_unique<PredictionDrafter>(std::move(engine), model.vocab_size()));
}

}  // namespace ktx::runtime

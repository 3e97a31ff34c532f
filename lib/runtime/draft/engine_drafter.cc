#include "lib/runtime/draft/engine_drafter.h"

#include <algorithm>

namespace ktx::runtime {

Sampler draft_sampler(const SamplingOptions& options, int64_t vocab) {
  auto sampler = Sampler::create(options, vocab);
  if (!sampler) sampler = Sampler::create(greedy_sampling(), vocab);
  return sampler.take();
}

std::optional<int32_t> EngineText::sample(int64_t row, std::span<const int32_t> history) {
  const auto sampled = engine.has_logits(row) ? sampler.sample(engine.logits(row), history)
                                              : sampler.sample(engine.best(row));
  return sampled ? std::optional<int32_t>(*sampled) : std::nullopt;
}

namespace {

// A drafter sees no images: to it their tokens, whose ids are below 0, are some token. That only
// makes its draft tokens worse.
std::vector<int32_t> without_images(std::vector<int32_t> ids) {
  for (int32_t& id : ids) id = std::max(id, 0);
  return ids;
}

}  // namespace

Status EngineDrafter::forward(std::vector<Open>& texts, Want want) {
  std::vector<std::vector<int32_t>> read;
  for (const Open& open : texts) read.push_back(without_images(open.next));
  while (!texts.empty()) {
    std::vector<BatchItem> items;
    for (size_t i = 0; i < texts.size(); ++i) {
      const Open& open = texts[i];
      BatchItem item{&open.text->sequence, read[i], want, open.text->sampler.best_needed()};
      item.rollback = want == Want::None ? 0 : open.item->most;
      item.hidden = open.hidden;
      items.push_back(item);
    }
    if (KTX_TRY(engine_->forward(items)) == Forward::Done) break;
    texts.back().text->lose();
    texts.pop_back();
  }
  for (const Open& open : texts) {
    open.text->held.insert(open.text->held.end(), open.next.begin(), open.next.end());
  }
  return {};
}

Status EngineDrafter::draft_on(std::vector<Open>& texts, const Timer& begun) {
  while (!texts.empty()) {
    KTX_TRY(take_draft_tokens(texts));
    if (first_seconds_ == 0) first_seconds_ = begun.seconds();
    KTX_TRY(forward(texts, Want::Last));
  }
  return {};
}

// A draft token for each, and what it reads next; those that are done go.
Status EngineDrafter::take_draft_tokens(std::vector<Open>& texts) {
  int64_t row = 0, end = 0;
  std::vector<Open> left;
  for (Open& open : texts) {
    const int64_t own = row++;
    end += std::ssize(open.next);
    const std::optional<Drafted> drafted = sample(*open.text, own);
    if (!drafted || drafted->token < 0 || drafted->token >= model_vocab_) continue;
    open.item->draft_tokens.push_back(drafted->token);
    if (std::ssize(open.item->draft_tokens) >= open.item->most) continue;
    open.next.assign(1, drafted->own);
    KTX_TRY(take_hidden_of(own, end - 1, open.hidden));
    left.push_back(std::move(open));
  }
  texts = std::move(left);
  return {};
}

}  // namespace ktx::runtime

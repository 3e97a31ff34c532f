#include "lib/runtime/draft/scripted_drafter.h"

#include <algorithm>
#include <utility>

namespace ktx::runtime {

std::unique_ptr<DraftText> ScriptedDrafter::begin(const std::string& owner,
                                                  const SamplingOptions& sampling) {
  return options_.cost_of ? options_.cost_of->begin(owner, sampling)
                          : std::make_unique<DraftText>();
}

Status ScriptedDrafter::take_hidden(DraftText& text, std::span<const int32_t> tokens, int64_t begin,
                                    std::span<const float> rows) {
  return options_.cost_of ? options_.cost_of->take_hidden(text, tokens, begin, rows) : Status();
}

int64_t ScriptedDrafter::behind(DraftText& text, std::span<const int32_t> tokens) {
  return options_.cost_of ? options_.cost_of->behind(text, tokens) : 0;
}

Status ScriptedDrafter::read(std::span<DraftItem> items, int64_t tokens) {
  return options_.cost_of ? options_.cost_of->read(items, tokens) : Status();
}

Status ScriptedDrafter::draft(std::span<DraftItem> items) {
  if (options_.cost_of) KTX_TRY(options_.cost_of->draft(items));
  for (DraftItem& item : items) item.draft_tokens = script(item.tokens, item.most);
  return {};
}

std::vector<int32_t> ScriptedDrafter::script(std::span<const int32_t> tokens, int64_t most) {
  std::vector<int32_t> draft_tokens;
  for (const std::vector<int32_t>& answer : answers_) {
    if (answer.size() <= tokens.size() || !std::equal(tokens.begin(), tokens.end(), answer.begin()))
      continue;
    const auto end = std::min<int64_t>(static_cast<int64_t>(tokens.size()) + most,
                                       static_cast<int64_t>(answer.size()));
    for (auto at = static_cast<int64_t>(tokens.size()); at < end; ++at) {
      int32_t id = answer[static_cast<size_t>(at)];
      if (random_.uniform() >= options_.acceptance) {
        id = static_cast<int32_t>((id + 1) % options_.vocab_size);
      }
      draft_tokens.push_back(id);
    }
    break;
  }
  return draft_tokens;
}

}  // namespace ktx::runtime

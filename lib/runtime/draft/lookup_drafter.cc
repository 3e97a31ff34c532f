#include "lib/runtime/draft/lookup_drafter.h"

#include "lib/runtime/draft/ngram_draft.h"

namespace ktx::runtime {
namespace {

class LookupDrafter : public Drafter {
 public:
  std::string_view name() const override { return "look-up"; }
  std::unique_ptr<DraftText> begin(const std::string&, const SamplingOptions&) override {
    return std::make_unique<DraftText>();
  }
  Status draft(std::span<DraftItem> items) override {
    for (DraftItem& item : items) item.draft_tokens = ngram_draft(item.tokens, item.most);
    return {};
  }
};

}  // namespace

std::unique_ptr<Drafter> make_lookup_drafter() {
  return std::make_unique<LookupDrafter>();
}

}  // namespace ktx::runtime

#include "lib/runtime/scheduler/slot_texts.h"

namespace ktx::runtime {

const SlotTexts::Entry* SlotTexts::find(const std::string& owner, int slot) const {
  const auto it = entries_.find({owner, slot});
  return it == entries_.end() ? nullptr : &it->second;
}

SlotTexts::Entry& SlotTexts::use(const std::string& owner, int slot) {
  Entry& entry = entries_[{owner, slot}];
  entry.state.id = slot;
  entry.used = ++clock_;
  return entry;
}

void SlotTexts::erase(const std::string& owner, int slot) {
  entries_.erase({owner, slot});
}

void SlotTexts::shrink() {
  int64_t tokens = 0;
  for (const auto& [key, entry] : entries_) {
    tokens += static_cast<int64_t>(entry.text.tokens.size());
  }
  while (tokens > most_tokens_) {
    auto oldest = entries_.end();
    for (auto it = entries_.begin(); it != entries_.end(); ++it) {
      if (it->second.state.busy) continue;
      if (oldest == entries_.end() || it->second.used < oldest->second.used) oldest = it;
    }
    if (oldest == entries_.end()) return;
    tokens -= static_cast<int64_t>(oldest->second.text.tokens.size());
    entries_.erase(oldest);
  }
}

std::vector<SlotState> SlotTexts::states(const std::string& owner) const {
  std::vector<SlotState> list(slots_);
  for (size_t i = 0; i < slots_; ++i) {
    list[i].id = static_cast<int>(i);
    if (const Entry* entry = find(owner, list[i].id)) list[i] = entry->state;
  }
  return list;
}

}  // namespace ktx::runtime

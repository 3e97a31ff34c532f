// The last texts of the batch's slots, separate for each owner: an owner sees only the texts of
// its own requests.
//
//   texts.use("", 0).text = ...;
//   texts.find("other", 0)        null: that owner has no text there
//
// Not thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "lib/runtime/scheduler/scheduler_stats.h"

namespace ktx::runtime {

class SlotTexts {
 public:
  struct Entry {
    SlotText text;
    SlotState state;
    uint64_t used = 0;  // clock
  };

  // With more than `most_tokens` in all, those of several owners, the longest unused go.
  SlotTexts(size_t slots, int64_t most_tokens) : slots_(slots), most_tokens_(most_tokens) {}

  const Entry* find(const std::string& owner, int slot) const;
  // Makes it where it is missing.
  Entry& use(const std::string& owner, int slot);
  void erase(const std::string& owner, int slot);
  // Keeps the limit; texts of requests that run stay.
  void shrink();
  // What the owner sees: a state for each place.
  std::vector<SlotState> states(const std::string& owner) const;

 private:
  size_t slots_;
  int64_t most_tokens_;
  uint64_t clock_ = 0;
  std::map<std::pair<std::string, int>, Entry> entries_;
};

}  // namespace ktx::runtime

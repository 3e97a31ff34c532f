// What a step computes, and for whom: item i is who[i]'s. Private to the batch scheduler.
#pragma once

#include <cstdint>
#include <vector>

#include "lib/runtime/scheduler/batch_scheduler.h"

namespace ktx::runtime {

struct BatchScheduler::StepItems {
  std::vector<BatchItem> items;  // of their tokens the number alone, once the step has begun
  std::vector<Running*> who;
  double seconds = 0;  // in the engine so far

  int64_t count(size_t i) const { return static_cast<int64_t>(items[i].tokens.size()); }
  // Rows of logits that item i has.
  int64_t rows(size_t i) const {
    return items[i].want == Want::None ? 0 : items[i].want == Want::All ? count(i) : 1;
  }
  // The rows of item i are those of its tokens, one by one, and not of draft tokens.
  bool tells_prompt(size_t i) const;
  int64_t tokens() const {
    int64_t sum = 0;
    for (size_t i = 0; i < items.size(); ++i) sum += count(i);
    return sum;
  }
};

}  // namespace ktx::runtime

// What a cache of experts did since it was opened (expert_cache.h).
#pragma once

#include <cstdint>

namespace ktx::runtime {

struct ExpertCacheUse {
  int64_t slots = 0;  // 0: there is no cache
  uint64_t slot_bytes = 0;
  int64_t experts = 0;     // of all layers
  int64_t hits = 0;        // experts of a layer and pass that were there when they were chosen
  int64_t ahead = 0;       // that were being read by then
  int64_t misses = 0;      // whose reads began then
  int64_t read_bytes = 0;  // from disk
  int64_t guesses = 0;     // experts that were predicted, and of these the chosen ones
  int64_t right_guesses = 0;
  double waited_seconds = 0;  // of all threads

  int64_t chosen() const { return hits + ahead + misses; }
  // What has happened since `before`.
  ExpertCacheUse since(const ExpertCacheUse& before) const {
    ExpertCacheUse more = *this;
    more.hits -= before.hits;
    more.ahead -= before.ahead;
    more.misses -= before.misses;
    more.read_bytes -= before.read_bytes;
    more.guesses -= before.guesses;
    more.right_guesses -= before.right_guesses;
    more.waited_seconds -= before.waited_seconds;
    return more;
  }
};

}  // namespace ktx::runtime

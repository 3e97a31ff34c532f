// What guests did since the plan was opened (expert_guests.h).
#pragma once

#include <cstdint>

namespace ktx::runtime {

struct ExpertGuestUse {
  int64_t slots = 0;        // of all layers; 0: the plan has none, or they do not change
  int64_t activations = 0;  // of layers with slots, in passes where the CPU had a part
  int64_t hits = 0;         // of these, by experts that were guests
  int64_t moves = 0;        // experts that have become guests
  int64_t bytes = 0;        // copied for them
  int64_t failures = 0;     // copies that failed; behind one, guests stay as they are

  // What has happened since `before`.
  ExpertGuestUse since(const ExpertGuestUse& before) const {
    ExpertGuestUse more = *this;
    more.activations -= before.activations;
    more.hits -= before.hits;
    more.moves -= before.moves;
    more.bytes -= before.bytes;
    more.failures -= before.failures;
    return more;
  }
};

}  // namespace ktx::runtime

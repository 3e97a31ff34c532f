#include "lib/plan/stream_slots.h"

namespace ktx::plan {

std::string_view name(StreamSlots slots) {
  constexpr std::string_view kNames[] = {"a layer", "a matrix", "an eighth of a matrix"};
  return kNames[static_cast<int>(slots)];
}

std::string_view word(StreamSlots slots) {
  constexpr std::string_view kWords[] = {"layer", "matrix", "eighth"};
  return kWords[static_cast<int>(slots)];
}

std::optional<StreamSlots> stream_slots(std::string_view text) {
  for (const StreamSlots slots : kStreamSlots) {
    if (word(slots) == text) return slots;
  }
  return std::nullopt;
}

}  // namespace ktx::plan

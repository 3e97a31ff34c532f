#include "lib/runtime/cache/snapshot_places.h"

#include <algorithm>

namespace ktx::runtime {
namespace {

constexpr int64_t kOpening = 64;  // tokens that templates put before an answer, at most

int64_t last_message_end(std::span<const int32_t> prompt,
                         const std::function<bool(int32_t)>& ends_message) {
  const auto size = static_cast<int64_t>(prompt.size());
  for (int64_t end = size - 1; end > 0 && end >= size - kOpening && ends_message; --end) {
    if (ends_message(prompt[end - 1])) return end;
  }
  return size - 1;
}

}  // namespace

std::vector<int64_t> snapshot_places(std::span<const int32_t> prompt, int64_t parting,
                                     const std::function<bool(int32_t)>& ends_message) {
  std::vector<int64_t> places;
  const auto size = static_cast<int64_t>(prompt.size());
  for (int64_t place = kSnapshotEvery; place < size; place += kSnapshotEvery) {
    places.push_back(place);
  }
  for (const int64_t place : {parting, last_message_end(prompt, ends_message)}) {
    if (place > 0 && place < size) places.push_back(place);
  }
  std::sort(places.begin(), places.end());
  places.erase(std::unique(places.begin(), places.end()), places.end());
  return places;
}

}  // namespace ktx::runtime

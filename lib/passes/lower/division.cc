#include "lib/passes/lower/division.h"

#include <numeric>

namespace ktx::passes {

int64_t Division::whole() const {
  return std::accumulate(segments_.begin(), segments_.end(), int64_t{0},
                         [](int64_t sum, const Segment& s) { return sum + s.whole(); });
}

int64_t Division::part() const {
  return std::accumulate(segments_.begin(), segments_.end(), int64_t{0},
                         [](int64_t sum, const Segment& s) { return sum + s.part(); });
}

int64_t Division::place_of(int64_t at) const {
  int64_t place = 0;
  for (const Segment& s : segments_) {
    if (at <= s.whole()) return place + at * s.part() / s.whole();
    at -= s.whole();
    place += s.part();
  }
  return place;
}

Division Division::of(int64_t begin, int64_t width) const {
  Division some;
  int64_t at = 0;
  for (const Segment& s : segments_) {
    if (at >= begin && at + s.whole() <= begin + width) some.segments_.push_back(s);
    at += s.whole();
  }
  return some;
}

std::vector<Run> Division::runs(int64_t gpu, int64_t gpus) const {
  std::vector<Run> runs;
  int64_t begin = 0;
  for (const Segment& s : segments_) {
    int64_t head = gpu * s.stride / gpus % s.count, left = s.local;
    while (left > 0) {
      const int64_t here = std::min(left, s.count - head);
      const int64_t first = begin + head * s.unit, count = here * s.unit;
      if (!runs.empty() && runs.back().first + runs.back().count == first) {
        runs.back().count += count;
      } else {
        runs.push_back({first, count});
      }
      left -= here;
      head = 0;
    }
    begin += s.whole();
  }
  return runs;
}

}  // namespace ktx::passes

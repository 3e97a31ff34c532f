// What each of several GPUs has of a row, of a weight's rows or of a vector: a run of heads from
// every segment, the same number on each GPU.
//
//   queries, keys and values of a delta net with 4 key heads and 8 value heads, on two GPUs
//   segments          heads  runs on cuda:0, cuda:1
//   [queries]         4      0 1 | 2 3
//   [keys]            4      0 1 | 2 3
//   [values]          8      0 to 3 | 4 to 7
//
// What GPUs share (two KV heads on four GPUs) is a run that several of them have.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace ktx::passes {

// How many of `count` heads each of `gpus` GPUs has: an equal part, or one that others have, too.
constexpr int64_t heads_of_one(int64_t count, int64_t gpus) {
  return std::max<int64_t>(1, count / gpus);
}
// Whether each GPU can have that many.
constexpr bool can_share(int64_t count, int64_t gpus) {
  return count % gpus == 0 || (count > 0 && gpus % count == 0);
}

// `count` heads of `unit` elements (or rows), of which GPU g has `local`, from number
// (g * stride / gpus) % count on; behind the last head the first one follows.
struct Segment {
  int64_t unit = 1;
  int64_t count = 0;
  int64_t local = 0;
  int64_t stride = 0;
  int64_t whole() const { return unit * count; }
  int64_t part() const { return unit * local; }
};

struct Run {
  int64_t first = 0, count = 0;
};

class Division {
 public:
  Division() = default;
  explicit Division(std::vector<Segment> segments) : segments_(std::move(segments)) {}

  // An equal part of all.
  static Division even(int64_t width, int64_t gpus) { return heads(1, width, gpus); }
  // An equal part of `count` heads, or a head that others have, too (can_share).
  static Division heads(int64_t unit, int64_t count, int64_t gpus) {
    return Division({{unit, count, heads_of_one(count, gpus), count}});
  }

  int64_t whole() const;  // all elements
  int64_t part() const;   // those of a GPU
  // Where in a GPU's part the whole's element `at` would be: at the ends of segments, and within
  // one where it is divided evenly.
  int64_t place_of(int64_t at) const;
  // Elements [begin, begin + width) alone, which are whole segments.
  Division of(int64_t begin, int64_t width) const;
  // What GPU number `gpu` of `gpus` has, in this order.
  std::vector<Run> runs(int64_t gpu, int64_t gpus) const;

 private:
  std::vector<Segment> segments_;
};

}  // namespace ktx::passes

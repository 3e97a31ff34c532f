// The best `most` of any number of scored positions, in memory for twice as many.
//
//   BestPositions best(memory, 2048);          memory: candidate_count(2048) words
//   best.add(scores, first, count);            as often as there are positions
//   int64_t n = best.finish(positions);        rising; n <= 2048
//
// Among equal scores the lower positions win, so that the choice does not depend on the order in
// which positions come or on how they were shared out. A score that is not a number is above all
// others, or below them by its sign.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <functional>
#include <span>

namespace ktx::kernels {

// A score and its position in one number: the larger one is the better one.
using Candidate = uint64_t;
inline Candidate candidate(float score, int64_t position) {
  const auto bits = std::bit_cast<uint32_t>(score + 0.0f);  // -0 is 0
  const uint32_t rising = bits >> 31 ? ~bits : bits | 0x80000000u;
  return uint64_t{rising} << 32 | (0xFFFFFFFFu - static_cast<uint32_t>(position));
}
inline int32_t position_of(Candidate c) {
  return static_cast<int32_t>(0xFFFFFFFFu - static_cast<uint32_t>(c));
}
constexpr int64_t candidate_count(int64_t most) {
  return 2 * most;
}

class BestPositions {
 public:
  BestPositions(Candidate* memory, int64_t most) : kept_(memory), most_(most) {}

  void add(Candidate c) {
    if (full_ && c <= least_) return;
    kept_[count_++] = c;
    if (count_ == 2 * most_) cut();
  }
  void add(const float* scores, int64_t first, int64_t count) {
    for (int64_t j = 0; j < count; ++j) add(candidate(scores[j], first + j));
  }
  // The best ones so far, in no order.
  std::span<const Candidate> best() {
    if (count_ > most_) cut();
    return {kept_, static_cast<size_t>(count_)};
  }
  // Their positions, rising, and how many they are. Nothing may be added any more.
  int64_t finish(int32_t* positions) {
    best();
    for (int64_t i = 0; i < count_; ++i) positions[i] = position_of(kept_[i]);
    std::sort(positions, positions + count_);
    return count_;
  }

 private:
  void cut() {
    std::nth_element(kept_, kept_ + most_ - 1, kept_ + count_, std::greater<>());
    count_ = most_;
    least_ = kept_[most_ - 1];
    full_ = true;
  }

  Candidate* kept_;
  int64_t most_;
  int64_t count_ = 0;
  Candidate least_ = 0;  // of the best ones, once there are enough
  bool full_ = false;
};

}  // namespace ktx::kernels

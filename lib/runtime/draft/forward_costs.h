// Measured seconds of a pass by how much it computes: decides whether draft tokens pay off.
//
//   costs.add(1, 0.0112);  costs.add(4, 0.0153);
//   costs.of(3)            // between the two
//
// For sizes that were not measured it interpolates between neighbours, and beyond them takes a
// share of the smallest (kExtra) for each token more, as of a dense model that waits for its
// weights: one step of four tokens takes 1.37 times a step of one on an H100.
#pragma once

#include <cstdint>
#include <map>

namespace ktx::runtime {

class ForwardCosts {
 public:
  static constexpr double kExtra = 0.12;

  // `size`: tokens of the pass, 1 or more. One measurement counts a fifth beside those before;
  // the first of a size, in which libraries load and graphs are made, no more than twice what was
  // expected.
  void add(int64_t size, double seconds);
  // 0: nothing was measured.
  double of(int64_t size) const;
  bool empty() const { return costs_.empty(); }
  bool measured(int64_t size) const { return costs_.count(bucket(size)) > 0; }
  int64_t largest() const { return costs_.empty() ? 0 : costs_.rbegin()->first; }  // measured
  // Measurements of any size since the last one of this size.
  int64_t age(int64_t size) const;

 private:
  struct Cost {
    double seconds = 0;
    int64_t count = 0;
    int64_t when = 0;
  };
  static int64_t bucket(int64_t size) { return size <= 32 ? size : (size + 7) / 8 * 8; }

  std::map<int64_t, Cost> costs_;
  int64_t now_ = 0;
};

}  // namespace ktx::runtime

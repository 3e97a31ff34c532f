// Work chunks: the rows of a weight cut into ranges that threads take in turn.
//
// For few tokens a range is a memory stream. The prefetcher needs some lines to follow it, so
// ranges should be long; but the thread with the last range delays the others, so it should be
// short. So ranges shrink: each round of the threads takes half of the remaining rows.
//
//   2048 rows, 4 threads:  256 256 256 256 | 128 128 128 128 | 64 64 64 64 | 32 ... 32
//   one thread:            2048
//
// One Zen 4 machine, four threads, against runs of one length (an eighth of a thread's share),
// token by token in turn: 1.02 to 1.04; with one thread 1.02 dense, 1.04 experts. F16 and BF16
// against runs of 256 KiB: 1.03 to 1.04, and 1.05 with one thread.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "kernels/matmul/matmul.h"

namespace ktx::runtime {

class RowRuns {
 public:
  // Limits of runs in rows; the last run may be shorter than all of them allow.
  struct Limits {
    int64_t least = 1;
    int64_t most = 1;
    int64_t multiple = 1;  // of which every run is one
    int64_t takers = 1;    // threads that take runs of these rows
  };

  RowRuns() = default;
  // All of one length.
  static RowRuns even(int64_t rows, int64_t each);
  static RowRuns falling(int64_t rows, const Limits& limits);

  int64_t count() const { return count_; }
  // How many runs, from the first on, are cut to the length of the first.
  int64_t of_first_length() const {
    for (size_t i = 1; i < used_; ++i) {
      if (rounds_[i].each != rounds_[0].each) return rounds_[i].run;
    }
    return count_;
  }
  int64_t begin(int64_t run) const {
    const Round& round = round_of(run);
    return round.row + (run - round.run) * round.each;
  }
  int64_t end(int64_t run) const { return std::min(rows_, begin(run) + round_of(run).each); }

 private:
  // Runs of one length, from this run and this row on.
  struct Round {
    int64_t run = 0, row = 0, each = 1;
  };
  static constexpr size_t kRounds = 24;

  void add_round(int64_t rows, int64_t each, int64_t most_runs);
  const Round& round_of(int64_t run) const {
    size_t i = used_;
    while (i > 1 && rounds_[i - 1].run > run) --i;
    return rounds_[i > 0 ? i - 1 : 0];
  }

  std::array<Round, kRounds> rounds_;
  size_t used_ = 0;
  int64_t count_ = 0;
  int64_t rows_ = 0;
};

// Whether a product with so many tokens reads w as a stream: it waits for memory, and its
// kernel takes rows as they come.
bool is_stream(const kernels::WeightMatrix& w, int64_t tokens);

// What threads read of `matrices` matrices like w, as streams; an item is the same run of
// rows of `products` of them.
struct StreamWork {
  const kernels::WeightMatrix& w;
  int64_t products = 1;
  int64_t matrices = 1;
  int64_t multiple = 1;  // of rows in a run
  int64_t threads = 1;
  int64_t shares = 1;  // of the thread pool: each has its part of the rows
};
RowRuns stream_runs(const StreamWork& work);

}  // namespace ktx::runtime

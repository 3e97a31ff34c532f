// Groups of columns that several items of a product write, each item some of the columns.
//
// A step behind the product that works in whole groups runs over those that an item has completed:
//
//   items of 96 columns, groups of 128:  | 0  96 | 96  192 | 192  256 |
//   completed by them, in this order:      none    [0, 128)  [128, 256)
//
// finish() may be called by several threads at once, once for each item.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>

#include "lib/formats/layout_size.h"
#include "lib/runtime/cpu/cpu_step.h"

namespace ktx::runtime {

class ColumnGroups {
 public:
  // Every item is its own group.
  void clear() { columns_ = 0; }

  // Before the first item: `matrices` of `width` columns, in groups of `columns`.
  void start(int64_t matrices, int64_t width, int64_t columns) {
    columns_ = columns;
    width_ = width;
    each_ = ceil_div(width, columns);
    if (const int64_t needed = matrices * each_; needed > room_) {
      left_ = std::make_unique<std::atomic<int64_t>[]>(static_cast<size_t>(needed));
      room_ = needed;
    }
    for (int64_t i = 0; i < matrices * each_; ++i) {
      left_[i].store(std::min(columns, width - i % each_ * columns), std::memory_order_relaxed);
    }
  }

  // The item of this matrix that wrote `region` is done. The region becomes the columns of the
  // groups that no other item has yet to write, or none.
  void finish(int64_t matrix, OutputRegion& region) {
    if (columns_ == 0) return;
    const int64_t begin = region.col_begin, end = region.col_end;
    region.col_begin = region.col_end = begin;
    for (int64_t group = begin / columns_; group * columns_ < end; ++group) {
      const int64_t first = group * columns_, last = std::min(first + columns_, width_);
      const int64_t written = std::min(end, last) - std::max(begin, first);
      // What the other items of this group wrote is seen by the one that completes it.
      if (left_[matrix * each_ + group].fetch_sub(written, std::memory_order_acq_rel) != written) {
        continue;
      }
      if (region.col_begin == region.col_end) region.col_begin = first;
      region.col_end = last;
    }
  }

 private:
  std::unique_ptr<std::atomic<int64_t>[]> left_;  // columns of each group, by matrix
  int64_t room_ = 0, each_ = 0;
  int64_t columns_ = 0, width_ = 0;
};

}  // namespace ktx::runtime

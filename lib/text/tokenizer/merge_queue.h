// The pairs of symbols that can be merged, by rank and among equals from the left.
//
//   MergeQueue queue;
//   queue.begin(symbols, ranks);
//   queue.push({rank, left, size});
//   while (const std::optional<MergePair> pair = queue.pop()) ...     // may push more
//
// A short text has one binary heap. In a heap of millions of pairs each level is a cache miss:
// merging 4 MB of letters took 8 s. So a long text has buckets by rank, which are sorted when
// their turn comes, and a heap only of what is pushed into the bucket whose turn it is (or, by an
// odd vocabulary, before it). The order is the same.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace ktx::text {

struct MergePair {
  uint32_t rank, left;  // the order; left: the index of its first symbol
  uint32_t size;        // the caller's
};

class MergeQueue {
 public:
  // For a text of so many symbols; all ranks are below `ranks`. Must be empty.
  void begin(size_t symbols, size_t ranks);
  void push(const MergePair& pair);
  // The first of all, or nothing.
  std::optional<MergePair> pop();
  // Which symbol is probably wanted some pairs later; 0 where that is not known.
  uint32_t soon() const;

 private:
  bool next_bucket();

  std::vector<MergePair> heap_;
  std::vector<std::vector<MergePair>> buckets_;
  std::vector<MergePair> turn_;  // the bucket whose turn it is, in order
  size_t next_in_turn_ = 0;
  size_t next_bucket_ = 0;  // what belongs into those before it goes into the heap
};

}  // namespace ktx::text

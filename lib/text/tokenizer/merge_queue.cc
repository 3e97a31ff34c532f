#include "lib/text/tokenizer/merge_queue.h"

#include <algorithm>
#include <bit>
#include <limits>

namespace ktx::text {
namespace {

constexpr size_t kLongText = 2048;  // symbols; their heap fits into the first cache
constexpr size_t kAhead = 8;
constexpr size_t kNoBuckets = std::numeric_limits<size_t>::max();

// Low ranks are frequent and have a bucket each; above, an octave of ranks has 2^8.
constexpr uint32_t kOctaveBits = 9;
size_t bucket_of(uint32_t rank) {
  const auto octave = static_cast<uint32_t>(std::bit_width(rank >> kOctaveBits));
  return (size_t{octave} << kOctaveBits) + (rank >> octave);
}

bool before(const MergePair& a, const MergePair& b) {
  return a.rank != b.rank ? a.rank < b.rank : a.left < b.left;
}
bool later(const MergePair& a, const MergePair& b) {
  return before(b, a);
}

}  // namespace

void MergeQueue::begin(size_t symbols, size_t ranks) {
  next_bucket_ = 0;
  if (symbols < kLongText) {
    next_bucket_ = kNoBuckets;
  } else {
    buckets_.resize(bucket_of(static_cast<uint32_t>(ranks)) + 1);
  }
}

void MergeQueue::push(const MergePair& pair) {
  if (next_bucket_ != kNoBuckets) {
    const size_t bucket = bucket_of(pair.rank);
    if (bucket >= next_bucket_) return buckets_[bucket].push_back(pair);
  }
  heap_.push_back(pair);
  std::push_heap(heap_.begin(), heap_.end(), later);
}

bool MergeQueue::next_bucket() {
  for (; next_bucket_ < buckets_.size(); ++next_bucket_) {
    if (buckets_[next_bucket_].empty()) continue;
    turn_ = std::move(buckets_[next_bucket_]);
    buckets_[next_bucket_++] = {};
    next_in_turn_ = 0;
    // In a text of one letter most pairs have one rank and come from the left: in order already.
    if (!std::is_sorted(turn_.begin(), turn_.end(), before)) {
      std::sort(turn_.begin(), turn_.end(), before);
    }
    return true;
  }
  return false;
}

std::optional<MergePair> MergeQueue::pop() {
  if (heap_.empty() && next_in_turn_ == turn_.size() && !next_bucket()) return std::nullopt;
  const bool from_turn =
      next_in_turn_ < turn_.size() && (heap_.empty() || before(turn_[next_in_turn_], heap_[0]));
  if (from_turn) return turn_[next_in_turn_++];
  std::pop_heap(heap_.begin(), heap_.end(), later);
  const MergePair pair = heap_.back();
  heap_.pop_back();
  return pair;
}

uint32_t MergeQueue::soon() const {
  const size_t at = next_in_turn_ + kAhead;
  return at < turn_.size() ? turn_[at].left : 0;
}

}  // namespace ktx::text

// When bytes of a source may go, while its weights are moved into a plan in the order in which they
// stand there (move_blobs.h).
//
//   for (const ReleasePiece& piece : release_order(contents, piece_bytes)) {
//     // bytes [begin, end) of the shard are not read again once the plan is there up to `behind`
//   }
#pragma once

#include <cstdint>
#include <vector>

#include "lib/plan/plan_contents.h"

namespace ktx::plan {

struct ReleasePiece {
  uint64_t behind;  // in the plan's file; 0: it is not read at all
  uint32_t shard;
  uint64_t begin, end;
};

// The bytes of a shard between what is before a tensor (the header, or tensors) and the tensor.
struct SourceGap {
  uint32_t shard;
  uint64_t begin, end;   // end < begin: the tensor overlaps what is before it
  uint32_t tensor_name;  // in `strings`; kNone: the end of the file follows
};
// In order of the offsets, those at the ends of the shards last.
std::vector<SourceGap> source_gaps(const PlanContents& contents);

// In order of `behind`. All of the source but its headers and the tensors that are kept: tensors in
// pieces of at most `piece_bytes`, and what lies between them. The contents have their layout, and
// hold all bytes of all tensors.
std::vector<ReleasePiece> release_order(const PlanContents& contents, uint64_t piece_bytes);

// Tensors of one row stay in the source to its end, with less than a thousandth of its bytes: a
// compiler that goes on after a kill reads the values of some (rope factors, scales).
inline bool is_kept(const GgufTensorRecord& tensor) {
  return tensor.rows == 1;
}

// How many bytes of a blob's slices, joined, the first `packed` bytes of the blob have whole.
uint64_t source_bytes_within(const BlobRecord& blob, uint64_t packed);

}  // namespace ktx::plan

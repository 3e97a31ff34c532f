// How the (token, head) pairs that read one KV head are laid on the rows of attention's blocks:
// some tokens side by side times the heads of a group, or some heads of a larger group.
//
//   const RowShape shape = row_shape(group, 16, one_token);
//   const BlockRows rows(shape, blockIdx.y, 16, group, tokens);
//   rows.token(r), rows.head(r)           // of row r; head -1: none
#pragma once

#include "kernels/cuda/common/cuda_launch.cuh"

namespace ktx::kernels {

struct RowShape {
  int heads;        // of a block
  int tokens;       // of a block
  int head_blocks;  // blocks for one token's group
  __host__ __device__ int64_t blocks(int64_t all) const {
    return ceil_div<int64_t>(all, tokens) * head_blocks;
  }
};
__host__ __device__ inline RowShape row_shape(int group, int rows, bool one_token) {
  if (group >= rows) return {rows, 1, (group + rows - 1) / rows};
  return {group, one_token ? 1 : rows / group, 1};
}

struct BlockRows {
  int first_token, tokens, first_head, heads, group;
  __device__ BlockRows(const RowShape& shape, int block, int rows, int group, int all)
      : first_token(block / shape.head_blocks * shape.tokens),
        tokens(min(shape.tokens, all - first_token)),
        first_head(block % shape.head_blocks * rows),
        heads(shape.heads),
        group(group) {}
  __device__ __forceinline__ int token(int r) const { return first_token + r / heads; }
  // In the group; -1: the row is empty.
  __device__ __forceinline__ int head(int r) const {
    const int head = first_head + r % heads;
    return r < tokens * heads && head < group ? head : -1;
  }
};

}  // namespace ktx::kernels

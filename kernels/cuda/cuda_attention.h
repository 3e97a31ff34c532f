// KV store and causal attention on the GPU, through a block table in device memory.
//
// The cache is that of kernels/attention/kv_layout.h: blocks of block_tokens tokens with
// the parts of all slots. Block b of sequence s begins at pool + table[s * table_stride
// + b] * block_bytes; a slot's part slot_offset bytes into it.
//
// attention covers GQA and MLA in absorbed form (value_in_key), decode and chunked
// prefill: token t sees positions [0, position[t]] of its sequence. What a token sees is cut
// into equal parts of whole pieces of 64 positions, as many as fill the GPU (fixed by the
// launch), merged in rising order.
#pragma once

#include "kernels/attention/kv_layout.h"
#include "kernels/cuda/cuda_stream.h"
#include "lib/formats/step_attrs.h"
#include "lib/support/result.h"

namespace ktx::kernels {

struct CudaKvView {
  KvLayout layout;  // F32, F16 or Q8_0
  std::byte* pool = nullptr;
  int64_t block_bytes = 0;  // from one block of the pool to the next; a multiple of 64
  int64_t slot_offset = 0;
  const int32_t* table = nullptr;  // [sequences, table_stride] block numbers
  int64_t table_stride = 0;
  const int32_t* sequence = nullptr;  // [T] row of table
  const int32_t* position = nullptr;  // [T] absolute; negative: padding
};

struct CudaKvStoreArgs {
  const float* key = nullptr;  // [T, kv_heads * key_dim]
  int64_t key_stride = 0;
  const float* value = nullptr;  // [T, kv_heads * value_dim]; null when value_dim = 0
  int64_t value_stride = 0;
  int64_t tokens = 0;
  CudaKvView kv;
};
Status launch_kv_store(const CudaKvStoreArgs& args, CudaStream stream);

struct CudaAttentionArgs {
  const float* q = nullptr;  // [T, heads * key_dim]
  int64_t q_stride = 0;
  float* y = nullptr;  // [T, heads * value_dim]
  int64_t y_stride = 0;
  int64_t tokens = 0;
  AttentionAttrs attrs;
  CudaKvView kv;
  // Upper bound of position[t] + 1 for every launch of this graph; decides the split.
  int64_t max_positions = 0;
  // A hint: no two tokens are of one sequence (pure decode). Right either way.
  bool one_token_per_sequence = false;
  std::byte* workspace = nullptr;
  int64_t workspace_bytes = 0;
};
int64_t cuda_attention_workspace(const CudaAttentionArgs& args);
Status launch_attention(const CudaAttentionArgs& args, CudaStream stream);

}  // namespace ktx::kernels

// KV store and causal attention on the GPU, through a block table in device memory.
//
// The cache is that of kernels/attention/kv_layout.h: blocks of block_tokens tokens with
// the parts of all slots. Block b of sequence s begins at pool + table[s * table_stride
// + b] * block_bytes; a slot's part slot_offset bytes into it.
//
// attention covers GQA and MLA in absorbed form (value_in_key), decode and chunked
// prefill: token t sees positions [first_position(attrs, position[t]), position[t]] of its
// sequence. Score, softcap and sinks are those of kernels/attention/attention.h. What a token sees
// is cut into equal parts of whole pieces of 64 positions, as many as fill the GPU (fixed by the
// launch), merged in rising order. Sparse attention is the same over the positions that a list
// names, or over those of the blocks that it names, taken by their numbers in it; compressed
// attention over entries and then the last positions, likewise by their numbers.
#pragma once

#include "kernels/attention/kv_layout.h"
#include "kernels/cuda/common/cuda_stream.h"
#include "lib/ops/step_attrs.h"
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

// What attention does first, when it is asked to: RMS norms of the heads of q and k, rope of
// both, and kv_store. q is left as it was.
struct CudaAttentionPrepare {
  const float* key = nullptr;  // [T, kv_heads * key_dim]; null: nothing of all this
  int64_t key_stride = 0;
  const float* value = nullptr;  // [T, kv_heads * value_dim]
  int64_t value_stride = 0;
  const float* q_norm = nullptr;  // [key_dim] or null
  const float* k_norm = nullptr;
  float q_eps = 0, k_eps = 0;
  const float* inv_freq = nullptr;  // [rope.rotary_dim / 2]
  RopeAttrs rope;                   // in place, for q and k alike; its heads are not used
  // [T] positions to rotate by, where they are not those of the cache: texts behind images.
  // Adjacent tokens of a sequence are as far apart as in the cache.
  const int32_t* time = nullptr;
};

struct CudaAttentionArgs {
  const float* q = nullptr;  // [T, heads * key_dim]
  int64_t q_stride = 0;
  float* y = nullptr;  // [T, heads * value_dim]
  int64_t y_stride = 0;
  int64_t tokens = 0;
  AttentionAttrs attrs;
  const float* sinks = nullptr;     // [heads], or none
  const int32_t* chosen = nullptr;  // [T, top_k] positions, rising; null: all
  // [T, kv_heads, top_k] blocks of `block` positions, rising, of each KV head its own, the last one
  // the token's; null: all.
  const int32_t* blocks = nullptr;
  int64_t top_k = 0;
  int32_t block = 0;
  CudaKvView kv;
  // Compressed attention: entries of `every` positions each, of one head (entry_layout), all that
  // the token sees or those in `chosen`, stand before the last `recent` positions; 0: none of this.
  CudaKvView entries;
  int32_t every = 0;
  int32_t recent = 0;
  // [T] Windows that reach as far forward as back: the last position of the token's text, which has
  // been stored.
  const int32_t* text_end = nullptr;
  // Upper bound of position[t] + 1 for every launch of this graph; decides the split.
  int64_t max_positions = 0;
  // A hint: no two tokens are of one sequence (pure decode). Right either way.
  bool one_token_per_sequence = false;
  // Where attention_prepares(); without one_token_per_sequence where attention_decodes(), and then
  // tokens of a sequence stand side by side, in positions that rise by one.
  CudaAttentionPrepare prepare;
  std::byte* workspace = nullptr;
  int64_t workspace_bytes = 0;
};
int64_t cuda_attention_workspace(const CudaAttentionArgs& args);
Status launch_attention(const CudaAttentionArgs& args, CudaStream stream);

// choose_positions: scores of all positions that a token sees, then the best top_k of them
// (ChoosePositionsAttrs). Tokens are taken in slices whose scores fit in a part of the workspace.
struct CudaChoosePositionsArgs {
  const float* q = nullptr;  // [T, heads * key_dim]
  int64_t q_stride = 0;
  const float* weights = nullptr;  // [T, heads]
  int64_t weights_stride = 0;
  int32_t* chosen = nullptr;  // [T, top_k], rising; -1 behind the last one
  int64_t tokens = 0;
  ChoosePositionsAttrs attrs;
  CudaKvView kv;              // of the indexer's keys, or of entries (attrs.every)
  int64_t max_positions = 0;  // as above
  std::byte* workspace = nullptr;
  int64_t workspace_bytes = 0;
};
int64_t cuda_choose_positions_workspace(const CudaChoosePositionsArgs& args);
Status launch_choose_positions(const CudaChoosePositionsArgs& args, CudaStream stream);

// choose_blocks: scores of all blocks of positions before a token's own, by each head, then the
// best of them (ChooseBlocksAttrs), in slices as above.
struct CudaChooseBlocksArgs {
  const float* q = nullptr;  // [T, heads * key_dim]
  int64_t q_stride = 0;
  int32_t* chosen = nullptr;  // [T, heads, top_k], rising; -1 behind the last one
  int64_t tokens = 0;
  ChooseBlocksAttrs attrs;
  CudaKvView kv;              // of the indexer's keys
  int64_t max_positions = 0;  // as above
  std::byte* workspace = nullptr;
  int64_t workspace_bytes = 0;
};
int64_t cuda_choose_blocks_workspace(const CudaChooseBlocksArgs& args);
Status launch_choose_blocks(const CudaChooseBlocksArgs& args, CudaStream stream);

// compress: an entry for each token that ends one (CompressAttrs), made, normed, rotated and
// stored.
struct CudaCompressArgs {
  CompressAttrs attrs;
  const float* bias = nullptr;      // [every, attrs.channels()]
  const float* norm = nullptr;      // [dim]
  const float* inv_freq = nullptr;  // [rotary_dim / 2]
  CudaKvView kv;                    // rows and scores of positions, F32 or F16
  CudaKvView entries;               // entry_layout
  int64_t tokens = 0;
};
Status launch_compress(const CudaCompressArgs& args, CudaStream stream);

// Whether launch_attention takes `prepare` for such heads and such a cache.
bool attention_prepares(const CudaAttentionArgs& args);
// Whether it takes `prepare` by the kernel of generated tokens (attention_decode.cu), which is the
// only one for several tokens of a sequence.
bool attention_decodes(const CudaAttentionArgs& args);

}  // namespace ktx::kernels

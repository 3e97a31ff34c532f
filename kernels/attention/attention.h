// Paged attention: causal attention over a KV cache in blocks, read through block tables, and
// the store that fills the cache.
//
//   kv_store:  key and value of token t go to position[t] of sequence[t]
//   attention: y[t, h] = sum over p in [first, position[t]] of softmax_p(score(t, h, p)) * value[p,
//   g]
//              score = scale * q[t, h] . key[p, g], bent by softcap, less alibi's part
//              with g = h / (heads / kv_heads), first = first_position(attrs, position[t])
//
// Text attention: tokens see those behind them, too, the last one at last_position(), which has
// been stored like those before.
//
// Sparse attention: the positions are those that `chosen` lists for the token, and kv.position
// holds the number of the last one. "Positions" below are then numbers in that list; where it has
// all positions, the bits are those of attention over all.
//
// Block attention: `chosen` lists blocks of chosen_block positions, for each KV head its own. Its
// positions are those of the blocks in their order, the last one's up to the token's own.
//
// Compressed attention: `entries` of a slot stand before the positions, entries_of[t] of them for
// token t, all from 0 on or those that `chosen` lists; behind them come the positions from
// first_of[t] on. kv.position holds the number of the last one in this list. A token is taken
// alone, and its rows of both slots may be of different types.
//
// A sink of a head is one more score of its softmax, without a value (gpt-oss).
// value_in_key: the value is the first value_dim elements of the key (absorbed MLA).
// Keys and values from `first` to each token's position must have been stored; what stands before
// is not read.
//
// Numerics: positions are taken in spans of kAttentionSpan, counted from position 0. Each
// gives a maximum, a sum and a value, which are merged in rising order into the row's. So
// an output depends on its own q and cache alone: not on chunk, batch, block size or
// threads. Scores and sums are F32 (double in the scalar variant). With a cache of F16 or
// Q8_0, q, keys, values and the weights that meet them are rounded to BF16 (not in the
// scalar variant), and pairs of products are added as vdpbf16ps does: twice the products
// an instruction, for errors well below those of activations of 8 bits.
//
// Items: any range of tokens x any range of q heads; a range that covers all heads
// of a KV head reads its cache once for all of them. Several tokens of one sequence
// in a row are taken together. A long row can also be cut into its spans: each is an
// item that leaves a partial result, and a last item merges them. Same bits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "kernels/attention/kv_layout.h"
#include "kernels/attention/text_span.h"
#include "lib/ops/step_attrs.h"
#include "lib/support/result.h"
#include "lib/target/isa.h"

namespace ktx::kernels {

struct KvStoreArgs {
  const float* key = nullptr;    // [T, kv_heads * key_dim]
  int64_t key_stride = 0;        // elements
  const float* value = nullptr;  // [T, kv_heads * value_dim], null when value_dim = 0
  int64_t value_stride = 0;
  KvView kv;
  int64_t token_begin = 0;
  int64_t token_end = 0;
};
using KvStoreFn = void (*)(const KvStoreArgs&);

enum class AttentionPart : uint8_t {
  Whole,
  OneSpan,  // positions of one span, to `partials`
  Merge,    // partials to y
};

struct AttentionArgs {
  const float* q = nullptr;  // [T, heads * key_dim]
  int64_t q_stride = 0;      // elements
  float* y = nullptr;        // [T, heads * value_dim]
  int64_t y_stride = 0;
  AttentionAttrs attrs;          // key_dim and kv_heads agree with kv.layout
  const float* sinks = nullptr;  // [heads], or none
  KvView kv;
  const int32_t* text_end = nullptr;  // [T] text attention: the last position of the token's text
  const int32_t* chosen = nullptr;    // [T, chosen_stride], rising; null: all positions
  int64_t chosen_stride = 0;
  int64_t chosen_each = 0;   // elements from a KV head's list to the next one's; 0: one for all
  int64_t chosen_block = 1;  // positions of an element
  KvView entries;            // of one head
  const int32_t* entries_of = nullptr;  // [T]; null: positions alone
  const int32_t* first_of = nullptr;    // [T]
  int64_t token_begin = 0;
  int64_t token_end = 0;
  int64_t head_begin = 0;  // q heads
  int64_t head_end = 0;
  std::byte* scratch = nullptr;  // attention_scratch_bytes(attrs), 64-byte aligned, one per thread
  AttentionPart part = AttentionPart::Whole;
  int64_t span = 0;  // OneSpan: which, from position 0 on; all rows of the range must see it
  float* partials = nullptr;  // [T * heads][spans][attention_partial_floats(attrs)]
  int64_t first_span = 0;     // that of the partials: none after the first one that a row sees
  int64_t spans = 0;          // at least those from there to the end of the longest row
};
using AttentionFn = void (*)(const AttentionArgs&);

inline constexpr int64_t kAttentionSpan = 256;  // positions
inline constexpr int64_t kAttentionRows = 192;  // tokens x q heads that share the work on a span

int64_t attention_scratch_bytes(const AttentionAttrs& attrs);
inline constexpr int64_t attention_partial_floats(const AttentionAttrs& attrs) {
  return int64_t{attrs.value_dim} + 2;  // and maximum and sum of the weights
}

// The last position that a token sees, or the number of the last one in its list.
inline int64_t last_seen(const AttentionArgs& a, int64_t token) {
  const int64_t position = a.kv.position[token];
  return a.text_end ? last_position(a.attrs, position, a.text_end[token]) : position;
}

// Whether number j of a token's list is an entry.
inline bool is_entry(const AttentionArgs& a, int64_t token, int64_t j) {
  return a.entries_of != nullptr && j < a.entries_of[token];
}

// Position j of the list of a token and KV head (or entry); j itself where all are seen.
inline int64_t seen_position(const AttentionArgs& a, int64_t token, int64_t kv_head, int64_t j) {
  if (a.entries_of && !is_entry(a, token, j)) return a.first_of[token] + j - a.entries_of[token];
  if (!a.chosen) return j;
  const int32_t* list = a.chosen + token * a.chosen_stride + kv_head * a.chosen_each;
  if (a.chosen_block == 1) return list[j];
  return list[j / a.chosen_block] * a.chosen_block + j % a.chosen_block;
}

// Families: "kv_store", "attention", "sparse_attention", "block_attention", "compressed_attention".
Result<KvStoreFn> find_kv_store(std::string_view family, Isa isa);
Result<AttentionFn> find_attention(std::string_view family, Isa isa);

}  // namespace ktx::kernels

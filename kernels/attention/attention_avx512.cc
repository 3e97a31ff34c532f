// Attention with AVX-512: the loops of attention_loop.h.
#include "kernels/attention/cache_avx512.h"
// (the policy first: the loops use its macros)
#include "kernels/attention/attention_bf16.h"
#include "kernels/attention/attention_loop.h"
#include "kernels/attention/compress_loop.h"
#include "kernels/attention/position_scores_loop.h"
#include "lib/target/fast_bf16_dots.h"

namespace ktx::kernels {

void attention_avx512(const AttentionArgs& a);
void position_scores_avx512(const PositionScoresArgs& a);
void block_scores_avx512(const BlockScoresArgs& a);
void compress_avx512(const CompressArgs& a);

void attention_bf16_floats(const AttentionArgs& a) {
  attention<RoundedDots<CacheAvx512>>(a);
}

void attention_avx512(const AttentionArgs& a) {
  static const AttentionFn rounded = has_fast_bf16_dots() ? attention_bf16_dots
                                     : has_bf16_dots()    ? attention_bf16_rounded
                                                          : attention_bf16_floats;
  if (a.kv.layout.type == KvType::F32) return attention<FloatDots<CacheAvx512>>(a);
  rounded(a);
}

void position_scores_avx512(const PositionScoresArgs& a) {
  position_scores<CacheAvx512>(a);
}

void block_scores_avx512(const BlockScoresArgs& a) {
  block_scores<CacheAvx512>(a);
}

void compress_avx512(const CompressArgs& a) {
  compress<CacheAvx512>(a);
}

}  // namespace ktx::kernels

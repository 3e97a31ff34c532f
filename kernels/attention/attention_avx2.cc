// Attention with AVX2: the loops of attention_loop.h.
#include "kernels/attention/cache_avx2.h"
// (the policy first: the loops use its macros)
#include "kernels/attention/attention_loop.h"
#include "kernels/attention/compress_loop.h"
#include "kernels/attention/position_scores_loop.h"

namespace ktx::kernels {

void attention_avx2(const AttentionArgs& a);
void position_scores_avx2(const PositionScoresArgs& a);
void block_scores_avx2(const BlockScoresArgs& a);
void compress_avx2(const CompressArgs& a);

void attention_avx2(const AttentionArgs& a) {
  if (a.kv.layout.type == KvType::F32) return attention<FloatDots<CacheAvx2>>(a);
  attention<RoundedDots<CacheAvx2>>(a);
}

void position_scores_avx2(const PositionScoresArgs& a) {
  position_scores<CacheAvx2>(a);
}

void block_scores_avx2(const BlockScoresArgs& a) {
  block_scores<CacheAvx2>(a);
}

void compress_avx2(const CompressArgs& a) {
  compress<CacheAvx2>(a);
}

}  // namespace ktx::kernels

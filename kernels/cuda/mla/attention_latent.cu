// Which form of attention_latent.cuh serves an attention, and its launch.
#include "kernels/cuda/mla/attention_latent.cuh"

namespace ktx::kernels {
namespace {

// Rows of a block in sixteens, and pieces in shared memory; no pieces: it does not fit.
struct LatentForm {
  int tiles, stages;
};
LatentForm form_of(const CudaAttentionArgs& a) {
  const int limit = shared_memory_limit() - 1024;
  const auto fits = [&](int tiles, int stages) {
    return LatentMemory(16 * tiles, a.attrs.key_dim, stages).bytes <= limit;
  };
  const int64_t group = a.attrs.heads / a.attrs.kv_heads;
  const bool few = group <= 16 && (one_token(a) || a.tokens == 1);
  const int tiles = few || !fits(2, 1) ? 1 : 2;
  return {tiles, fits(tiles, 2) ? 2 : fits(tiles, 1) ? 1 : 0};
}

template <KvType kType, int kTiles, int kOwn>
Status launch_form(const CudaAttentionArgs& a, const AttentionParts& parts, int stages,
                   cudaStream_t stream) {
  const RowShape shape = row_shape(a.attrs.heads / a.attrs.kv_heads, 16 * kTiles, one_token(a));
  const dim3 grid(parts.splits, static_cast<unsigned>(shape.blocks(a.tokens)), a.attrs.kv_heads);
  const int shared = LatentMemory(16 * kTiles, a.attrs.key_dim, stages).bytes;
  return launch("attention",
                has_list(a) ? attention_latent<kType, kTiles, kOwn, true>
                            : attention_latent<kType, kTiles, kOwn, false>,
                grid, kLatentThreads, shared, stream, a, parts, stages);
}
template <KvType kType>
Status launch_type(const CudaAttentionArgs& a, const AttentionParts& parts, cudaStream_t stream) {
  const LatentForm form = form_of(a);
  if (a.attrs.value_dim == 512) {
    return form.tiles == 2 ? launch_form<kType, 2, 8>(a, parts, form.stages, stream)
                           : launch_form<kType, 1, 8>(a, parts, form.stages, stream);
  }
  return form.tiles == 2 ? launch_form<kType, 2, 4>(a, parts, form.stages, stream)
                         : launch_form<kType, 1, 4>(a, parts, form.stages, stream);
}

}  // namespace

bool attention_latent_takes(const CudaAttentionArgs& a) {
  // Entries of a Q8_0 cache may be F16, not the other way round.
  const KvType entries = a.every > 0 ? a.entries.layout.type : a.kv.layout.type;
  return a.attrs.value_in_key && a.attrs.softcap == 0 && !a.blocks && !a.text_end &&
         a.kv.layout.type != KvType::F32 &&
         (entries == KvType::F16 || entries == a.kv.layout.type) && a.attrs.key_dim % 32 == 0 &&
         (a.attrs.value_dim == 256 || a.attrs.value_dim == 512) &&
         a.attrs.value_dim <= a.attrs.key_dim && a.kv.layout.block_tokens % kPiece == 0 &&
         form_of(a).stages > 0;
}

int64_t attention_latent_blocks(const CudaAttentionArgs& a) {
  const int64_t group = a.attrs.heads / a.attrs.kv_heads;
  const RowShape shape = row_shape(static_cast<int>(group), 16 * form_of(a).tiles, one_token(a));
  return shape.blocks(a.tokens) * a.attrs.kv_heads;
}

Status launch_attention_latent(const CudaAttentionArgs& a, const AttentionParts& parts,
                               cudaStream_t stream) {
  return a.kv.layout.type == KvType::F16 ? launch_type<KvType::F16>(a, parts, stream)
                                         : launch_type<KvType::Q8_0>(a, parts, stream);
}

}  // namespace ktx::kernels

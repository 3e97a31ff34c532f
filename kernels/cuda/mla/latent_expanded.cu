// MLA in expanded form (cuda_latent.h): how many heads at a time, and the launches in their order.
//
//   panels of latents, once                       latent_panels.cu
//   for each group of heads:
//     panels of weights                           latent_panels.cu
//     keys and values                             latent_expand.cu
//     attention, its parts merged                 latent_attention.cu, attention.cu
#include "kernels/cuda/common/cuda_launch.cuh"
#include "kernels/cuda/matmul/half_rows.cuh"
#include "kernels/cuda/mla/latent_panels.cuh"
#include "lib/formats/layout.h"

namespace ktx::kernels {
namespace {

// Memory for the weights, keys and values of a group of heads: as many heads as fit.
constexpr int64_t kGroupBytes = int64_t{160} << 20;
// A part of the positions has at least this many pieces.
constexpr int kLeastPieces = 4;

int64_t blocks_of_head(const CudaLatentArgs& a) {
  return ceil_div<int64_t>(a.tokens, kLatentAttentionRows);
}
int64_t pieces_of(const CudaLatentArgs& a) {
  return ceil_div<int64_t>(a.positions, kPiece);
}
// For one head: key and value weights in F16, and the same together with its keys and values.
int64_t weight_bytes(const CudaLatentArgs& a) {
  return int64_t{4} * a.head_dim * a.latent_dim;
}
int64_t head_bytes(const CudaLatentArgs& a) {
  return weight_bytes(a) + pieces_of(a) * 256 * a.head_dim;
}
int64_t latent_bytes(const CudaLatentArgs& a) {
  return pieces_of(a) * (a.latent_dim / 64 + 1) * kPanelHalves * 2;
}

// As many heads as fit, or fewer if then the rounds of attention's blocks over the SMs are
// fewer. A block has an SM to itself.
int heads_at_once(const CudaLatentArgs& a, int sms) {
  const int64_t fit = kGroupBytes / head_bytes(a);
  const int most = static_cast<int>(fit < 1 ? 1 : fit < a.heads ? fit : a.heads);
  const auto rounds = [&](int heads) {
    const int64_t blocks = heads * blocks_of_head(a), rest = a.heads % heads * blocks_of_head(a);
    return a.heads / heads * ceil_div<int64_t>(blocks, sms) + ceil_div<int64_t>(rest, sms);
  };
  int best = most;
  for (int heads = most - 1; heads >= 1; --heads) {
    if (rounds(heads) < rounds(best)) best = heads;
  }
  return best;
}

// Parts of the positions, where heads alone leave SMs without a block.
int split_count(const CudaLatentArgs& a, int heads, int sms) {
  const int64_t wanted = sms / (heads * blocks_of_head(a));
  const int64_t most = pieces_of(a) / kLeastPieces;
  const int64_t splits = wanted < most ? wanted : most;
  return static_cast<int>(splits > 1 ? splits : 1);
}

// No more bytes than that are ever asked for parts: one for a block, and no more blocks than SMs.
int64_t parts_bytes(const CudaLatentArgs& a, int sms) {
  const int64_t rows = int64_t{sms} * kLatentAttentionRows;
  return workspace_aligned(rows * a.head_dim * 4) + workspace_aligned(rows * 8);
}

// Attention of a group of heads, and the merge of its parts.
Status attend(const LatentAttention& group, int heads, cudaStream_t stream) {
#ifdef KTX_CUDA_WGMMA
  KTX_TRY(launch_latent_attention(group, heads, stream));
#endif
  if (group.parts.splits == 1) return {};
  return launch_merge_parts(group.parts, heads, group.of.head_dim, group.of.tokens, nullptr,
                            group.of.y, group.of.y_stride, stream);
}

}  // namespace

bool latent_expanded_runs() {
#ifdef KTX_CUDA_WGMMA
  return compute_capability() == 90;
#else
  return false;
#endif
}

bool latent_expanded_takes(const CudaLatentArgs& a) {
  const auto fits = [&](const CudaWeight& w, const MatmulHeadsAttrs& heads, bool rows_are_latent) {
    const int32_t rows = rows_are_latent ? a.latent_dim : a.head_dim;
    const int32_t cols = rows_are_latent ? a.head_dim : a.latent_dim;
    return w.layout == Layout::Marlin && cuda_matmul_takes(w.dtype, w.layout) && w.cols == cols &&
           heads.heads == a.heads && heads.row_count == rows && heads.row_begin % 16 == 0 &&
           heads.row_begin + rows <= w.rows;
  };
  return latent_expanded_runs() && (a.head_dim == 64 || a.head_dim == 128) && a.rope_dim <= 64 &&
         a.rope_dim % 8 == 0 && a.latent_dim > 0 && a.latent_dim % 64 == 0 &&
         a.kv.layout.type != KvType::F32 && a.kv.layout.kv_heads == 1 &&
         a.kv.layout.key_dim == a.latent_dim + a.rope_dim && a.y_stride % 2 == 0 &&
         fits(a.key, a.key_heads, !a.key_heads.transposed) && !a.value_heads.transposed &&
         fits(a.value, a.value_heads, false);
}

int64_t latent_expanded_workspace(const CudaLatentArgs& a) {
  const int64_t group = kGroupBytes > head_bytes(a) ? kGroupBytes : head_bytes(a);
  const int64_t all = a.heads * head_bytes(a);
  return latent_bytes(a) + (group < all ? group : all) + parts_bytes(a, sm_count());
}

Status launch_latent_expanded(const CudaLatentArgs& a, CudaStream stream) {
  if (a.tokens == 0) return {};
  if (!latent_expanded_takes(a))
    return Error{"latent_expanded: no kernel for such heads, weights or cache"};
  KTX_TRY(check_workspace("latent_expanded", a.workspace_bytes, latent_expanded_workspace(a)));
  const int sms = sm_count();
  const int at_once = heads_at_once(a, sms);
  auto* const latents = reinterpret_cast<uint16_t*>(a.workspace);
  std::byte* const parts = a.workspace + latent_bytes(a);
  std::byte* const weights = parts + parts_bytes(a, sms);
  KTX_TRY(launch_latent_panels(a, latents, stream));
  for (int first = 0; first < a.heads; first += at_once) {
    const int heads = a.heads - first < at_once ? a.heads - first : at_once;
    LatentExpand expand;
    expand.latents = latents;
    expand.weights = reinterpret_cast<const uint16_t*>(weights);
    expand.expanded = reinterpret_cast<uint16_t*>(weights + heads * weight_bytes(a));
    expand.latent_panels = a.latent_dim / 64;
    expand.pieces = static_cast<int>(pieces_of(a));
    KTX_TRY(launch_weight_panels(a, first, heads, reinterpret_cast<uint16_t*>(weights), stream));
#ifdef KTX_CUDA_WGMMA
    KTX_TRY(launch_latent_expand(expand, a.head_dim, heads, stream));
#endif
    LatentAttention group;
    group.of = a;
    group.of.queries += first * latent_query_halves(a.head_dim);
    group.of.y += first * a.head_dim;
    group.latents = latents;
    group.expanded = expand.expanded;
    group.latent_panels = expand.latent_panels;
    group.pieces = expand.pieces;
    group.parts.splits = split_count(a, heads, sms);
    group.parts.values = reinterpret_cast<float*>(parts);
    group.parts.sums = reinterpret_cast<float2*>(
        parts + workspace_aligned(int64_t{sms} * kLatentAttentionRows * a.head_dim * 4));
    KTX_TRY(attend(group, heads, stream));
  }
  return {};
}

}  // namespace ktx::kernels

// Latents of the cache and weights of their heads as panels, and queries in F16
// (latent_panels.cuh). Roofline: bytes; all are small beside what is made of them.
#include "kernels/cuda/mla/latent_panels.cuh"

#include "kernels/cuda/common/cuda_launch.cuh"
#include "kernels/cuda/marlin/marlin_tile.cuh"
#include "kernels/matmul/marlin_layout.h"

namespace ktx::kernels {
namespace {

constexpr int kRowThreads = kPiece * 8;  // one for 8 halves

// A block a piece and panel.
template <KvType kType>
__global__ void __launch_bounds__(kRowThreads)
    latent_rows(CudaKvView kv, int positions, int width, uint16_t* latents) {
  begin_kernel();
  const int row = static_cast<int>(threadIdx.x) / 8, part = static_cast<int>(threadIdx.x) % 8;
  const int piece = static_cast<int>(blockIdx.x), panel = static_cast<int>(blockIdx.y);
  const int position = piece * kPiece + row, column = panel * 64 + part * 8;
  uint32_t v[4] = {};
  if (position < positions && column < width) {
    kv_halves<kType, 8>(kv_key(kv, kv.sequence[0], 0, position), column, v);
  }
  uint16_t* to = latents + (int64_t{piece} * gridDim.y + panel) * kPanelHalves;
  *reinterpret_cast<uint4*>(to + panel_place(row, part * 8)) = {v[0], v[1], v[2], v[3]};
}

constexpr int kQueryThreads = 256;  // one for the four columns that a lane has of 16

__global__ void __launch_bounds__(kQueryThreads) latent_queries(CudaLatentQueriesArgs a) {
  begin_kernel();
  const int lanes = (a.head_dim + 64) / 4;  // of a head
  const int64_t index = int64_t{blockIdx.x} * kQueryThreads + threadIdx.x;
  const int part = static_cast<int>(index % lanes), head = static_cast<int>(index / lanes);
  const int64_t token = blockIdx.y;
  if (head >= a.heads) return;
  const bool rotary = part * 4 >= a.head_dim;
  const int begin = part / 4 * 16 + part % 4 * 2 - (rotary ? a.head_dim : 0);
  const float* x = rotary ? a.q_rope + token * a.q_rope_stride + head * a.q_rope_head
                          : a.q + token * a.q_stride + head * a.q_head;
  uint2 v = {0, 0};
  if (!rotary || begin < a.rope_dim) v.x = pack_halves(x[begin] * a.scale, x[begin + 1] * a.scale);
  if (!rotary || begin + 8 < a.rope_dim) {
    v.y = pack_halves(x[begin + 8] * a.scale, x[begin + 9] * a.scale);
  }
  reinterpret_cast<uint2*>(a.queries)[token * a.heads * lanes + index] = v;
}

struct WeightPanels {
  const uint8_t* w;
  int64_t matrix_bytes, strip_bytes;
  int cols, strip_begin, strips;
  uint16_t* out;  // of the first head
  int64_t head_halves;
  int head_dim;
};

constexpr int kWarps = 4;

// A warp a tile. kTransposed: rows of the matrix are the latent's elements, columns the head's.
template <DType kType, bool kTransposed>
__global__ void __launch_bounds__(32 * kWarps) weight_panels(WeightPanels p) {
  begin_kernel();
  using Tile = MarlinTile<kType>;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int index = static_cast<int>(blockIdx.x) * kWarps + static_cast<int>(threadIdx.x) / 32;
  const MarlinTiles<Tile> tiles(p.cols);
  const int strip = index / tiles.count, number = index % tiles.count;
  if (strip >= p.strips) return;
  Tile tile;
  tile.template load<true>(p.w + blockIdx.y * p.matrix_bytes +
                               (p.strip_begin + strip) * p.strip_bytes + tiles.offset(number),
                           tiles.spans(number), lane);
  uint16_t* out = p.out + blockIdx.y * p.head_halves;
#pragma unroll
  for (int c = 0; c < 8; ++c) {
    uint32_t a[8];
    tile.fragment(c, a);
    const int col = number * 256 + c * 32 + lane % 4 * 8;
    if (col >= p.cols) continue;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int row = strip * 16 + lane / 4 + 8 * r;
      const uint32_t v[4] = {a[r], a[2 + r], a[4 + r], a[6 + r]};
      if constexpr (kTransposed) {
        uint16_t* panel = out + row / 64 * p.head_dim * 64;
#pragma unroll
        for (int i = 0; i < 8; ++i) {
          panel[panel_place(col + i, row % 64)] = static_cast<uint16_t>(v[i / 2] >> (i % 2 * 16));
        }
      } else {
        uint16_t* panel = out + col / 64 * p.head_dim * 64;
        *reinterpret_cast<uint4*>(panel + panel_place(row, col % 64)) = {v[0], v[1], v[2], v[3]};
      }
    }
  }
}

// `rows_are_latent`: of the matrix, as a split attn_k_b has it.
Status launch_panels_of(const CudaWeight& w, const MatmulHeadsAttrs& heads, bool rows_are_latent,
                        const WeightPanels& panels, int first, int count, cudaStream_t stream) {
  WeightPanels p = panels;
  p.w = reinterpret_cast<const uint8_t*>(w.data) + first * w.matrix_bytes;
  p.matrix_bytes = w.matrix_bytes;
  p.strip_bytes = marlin_strip_bytes(w.dtype, w.cols);
  p.cols = static_cast<int>(w.cols);
  p.strip_begin = heads.row_begin / 16;
  p.strips = heads.row_count / 16;
  const int tiles = p.strips * ceil_div(p.cols, 256);
  const dim3 grid(static_cast<unsigned>(ceil_div(tiles, kWarps)), static_cast<unsigned>(count));
  return for_marlin_type<Status>(
      w.dtype, Error{"not a format of marlin weights"}, [&]<DType kType>() {
        const auto kernel =
            rows_are_latent ? weight_panels<kType, true> : weight_panels<kType, false>;
        return launch("panels of weights", kernel, grid, 32 * kWarps, 0, stream, p);
      });
}

}  // namespace

Status launch_latent_queries(const CudaLatentQueriesArgs& a, CudaStream stream) {
  const int64_t items = a.heads * latent_query_halves(a.head_dim) / 4;
  const dim3 grid(static_cast<unsigned>(ceil_div<int64_t>(items, kQueryThreads)),
                  static_cast<unsigned>(a.tokens));
  return launch("queries", latent_queries, grid, kQueryThreads, 0, stream, a);
}

Status launch_latent_panels(const CudaLatentArgs& a, uint16_t* latents, cudaStream_t stream) {
  const int positions = static_cast<int>(a.positions), width = a.latent_dim + a.rope_dim;
  const dim3 grid(static_cast<unsigned>(ceil_div(positions, kPiece)),
                  static_cast<unsigned>(a.latent_dim / 64 + 1));
  const auto kernel =
      a.kv.layout.type == KvType::F16 ? latent_rows<KvType::F16> : latent_rows<KvType::Q8_0>;
  return launch("panels of latents", kernel, grid, kRowThreads, 0, stream, a.kv, positions, width,
                latents);
}

Status launch_weight_panels(const CudaLatentArgs& a, int first, int count, uint16_t* weights,
                            cudaStream_t stream) {
  WeightPanels p = {};
  p.head_dim = a.head_dim;
  p.head_halves = int64_t{2} * a.head_dim * a.latent_dim;
  p.out = weights;
  KTX_TRY(launch_panels_of(a.key, a.key_heads, !a.key_heads.transposed, p, first, count, stream));
  p.out = weights + p.head_halves / 2;
  return launch_panels_of(a.value, a.value_heads, false, p, first, count, stream);
}

}  // namespace ktx::kernels

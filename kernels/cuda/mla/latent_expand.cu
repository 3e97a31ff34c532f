// Keys and values of heads from latents (latent_panels.cuh), by Hopper's products.
//
//   keys     [64 positions x head_dim] = latents . key weights      a warpgroup a piece
//   values   [head_dim x 64 positions] = value weights . latents
//
// Both sum over the latent, which both sides have in their rows: so either can be A, and the
// values come out with positions in rows, as attention's second product wants them. A block of two
// warpgroups makes two pieces of one head; panels of 64 latent elements pass through four stages of
// shared memory, where the results are put in order before they go out in whole lines.
//
// Roofline: a panel is 48 KiB from L2 for 512 cycles of the tensor cores (head_dim 128). Shared
// memory: 192 KiB. Registers: 128 sums.
#include "kernels/cuda/common/cuda_launch.cuh"
#include "kernels/cuda/common/wgmma.cuh"
#include "kernels/cuda/mla/latent_panels.cuh"

namespace ktx::kernels {
namespace {

constexpr int kThreads = 256;
constexpr int kStages = 4;
constexpr int kPanelBytes = kPanelHalves * 2;  // of 64 rows

template <int kDim>
struct ExpandMemory {
  static constexpr int kWeightBytes = kDim * 128;
  static constexpr int kStageBytes = 2 * kPanelBytes + 2 * kWeightBytes;
  static constexpr int kPieceBytes = kDim * 256;               // keys and values of a piece
  static constexpr int kBytes = kStages * kStageBytes + 1024;  // to align
};

template <int kDim>
__global__ void __launch_bounds__(kThreads, 1) latent_expand(LatentExpand p) {
  begin_kernel();
  using Memory = ExpandMemory<kDim>;
  constexpr bool kBoth =
      kDim == 128;  // of the values a warpgroup makes half the rows of both pieces
  extern __shared__ uint8_t expand_shared[];
  __shared__ uint64_t full[kStages];
  uint8_t* const memory = expand_shared + (-shared_address(expand_shared) & 1023);
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32, warp = thread / 32;
  const int group = warp / 4, first_piece = 2 * static_cast<int>(blockIdx.x);
  const int head = static_cast<int>(blockIdx.y);
  if (thread == 0) {
    for (uint64_t& barrier : full) start_barrier(&barrier);
  }
  __syncthreads();

  const auto fetch = [&](int panel) {
    if (thread != 0 || panel >= p.latent_panels) return;
    uint8_t* to = memory + panel % kStages * Memory::kStageBytes;
    uint64_t* barrier = &full[panel % kStages];
    bytes_to_come(barrier, Memory::kStageBytes);
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int64_t piece = min(first_piece + i, p.pieces - 1);
      copy_bulk(to + i * kPanelBytes,
                p.latents + (piece * (p.latent_panels + 1) + panel) * kPanelHalves, kPanelBytes,
                barrier);
      copy_bulk(to + 2 * kPanelBytes + i * Memory::kWeightBytes,
                p.weights + ((int64_t{head} * 2 + i) * p.latent_panels + panel) * kDim * 64,
                Memory::kWeightBytes, barrier);
    }
  };
  for (int panel = 0; panel < kStages; ++panel) fetch(panel);

  float keys[kDim / 8][4] = {}, values[kDim / 8][4] = {};
  for (int panel = 0; panel < p.latent_panels; ++panel) {
    wait_phase(&full[panel % kStages], panel / kStages % 2);
    const uint8_t* latents = memory + panel % kStages * Memory::kStageBytes;
    const uint8_t* own = latents + group * kPanelBytes;
    const uint8_t* key_weights = latents + 2 * kPanelBytes;
    const uint8_t* value_weights =
        key_weights + Memory::kWeightBytes + (kBoth ? group * kPanelBytes : 0);
    fence_wgmma();
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      wgmma_f16(keys, wgmma_rows(own, k), wgmma_rows(key_weights, k), true);
      wgmma_f16(values, wgmma_rows(value_weights, k), wgmma_rows(kBoth ? latents : own, k), true);
    }
    commit_wgmma();
    wait_wgmma<1>();
    __syncthreads();  // all are done with the panel before
    if (panel > 0) fetch(panel - 1 + kStages);
  }
  wait_wgmma<0>();
  ready(keys);
  ready(values);
  __syncthreads();

  // Rows g and g + 8 of a warp's 16, columns 8j + 2t and the next.
  const int row = warp % 4 * 16 + lane / 4, column = lane % 4 * 2;
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int position = row + 8 * r, element = position + (kBoth ? 64 * group : 0);
#pragma unroll
    for (int j = 0; j < kDim / 8; ++j) {
      const int place = panel_place(position, j % 8 * 8 + column) * 2;
      *reinterpret_cast<uint32_t*>(memory + group * Memory::kPieceBytes + j / 8 * kPanelBytes +
                                   place) = pack_halves(keys[j][2 * r], keys[j][2 * r + 1]);
      const int piece = kBoth ? j / 8 : group;
      *reinterpret_cast<uint32_t*>(memory + piece * Memory::kPieceBytes + kDim * 128 +
                                   panel_place(element, j % 8 * 8 + column) * 2) =
          pack_halves(values[j][2 * r], values[j][2 * r + 1]);
    }
  }
  __syncthreads();
  constexpr int kQuads = Memory::kPieceBytes / 16;
  for (int i = thread; i < 2 * kQuads; i += kThreads) {
    const int piece = first_piece + i / kQuads;
    if (piece >= p.pieces) break;
    uint4* to = reinterpret_cast<uint4*>(p.expanded) + (int64_t{head} * p.pieces + piece) * kQuads;
    to[i % kQuads] = reinterpret_cast<const uint4*>(memory)[i];
  }
}

}  // namespace

Status launch_latent_expand(const LatentExpand& p, int head_dim, int heads, cudaStream_t stream) {
  const dim3 grid(static_cast<unsigned>(ceil_div(p.pieces, 2)), static_cast<unsigned>(heads));
  const char* what = "keys and values of latents";
  if (head_dim == 128) {
    return launch(what, latent_expand<128>, grid, kThreads, ExpandMemory<128>::kBytes, stream, p);
  }
  return launch(what, latent_expand<64>, grid, kThreads, ExpandMemory<64>::kBytes, stream, p);
}

}  // namespace ktx::kernels

// kv_store (cuda_attention.h): a warp takes 32 elements of a row, a Q8_0 block of the
// cache.
#include "kernels/cuda/attention/kv_rows.cuh"
#include "kernels/cuda/common/cuda_launch.cuh"

namespace ktx::kernels {
namespace {

constexpr int kWarps = 4;

__global__ void __launch_bounds__(32 * kWarps) kv_store(CudaKvStoreArgs a) {
  begin_kernel();
  const int64_t t = blockIdx.y;
  const int position = a.kv.position[t];
  if (position < 0) return;
  const KvLayout& layout = a.kv.layout;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int key_pieces = static_cast<int>(layout.key_dim + 31) / 32;
  const int value_pieces = static_cast<int>(layout.value_dim + 31) / 32;
  const int item = static_cast<int>(blockIdx.x) * kWarps + static_cast<int>(threadIdx.x) / 32;
  const int head = item / (key_pieces + value_pieces), piece = item % (key_pieces + value_pieces);
  if (head >= layout.kv_heads) return;
  const int sequence = a.kv.sequence[t];
  if (piece < key_pieces) {
    store_piece(layout.type, a.key + t * a.key_stride + head * layout.key_dim, piece * 32 + lane,
                static_cast<int>(layout.key_dim), kv_key(a.kv, sequence, head, position));
  } else {
    store_piece(layout.type, a.value + t * a.value_stride + head * layout.value_dim,
                (piece - key_pieces) * 32 + lane, static_cast<int>(layout.value_dim),
                kv_value(a.kv, sequence, head, position));
  }
}

}  // namespace

Status launch_kv_store(const CudaKvStoreArgs& a, CudaStream stream) {
  const KvLayout& layout = a.kv.layout;
  const int64_t pieces =
      layout.kv_heads * ((layout.key_dim + 31) / 32 + (layout.value_dim + 31) / 32);
  const dim3 grid(static_cast<unsigned>(ceil_div<int64_t>(pieces, kWarps)),
                  static_cast<unsigned>(a.tokens));
  return launch("kv_store", kv_store, grid, 32 * kWarps, 0, stream, a);
}

}  // namespace ktx::kernels

// Marlin weights as rows of F16: for library products on large batches, and to check the
// decoders. One warp a tile. Roofline: bytes written, 2 a weight.
#include "kernels/cuda/common/cuda_launch.cuh"
#include "kernels/cuda/marlin/marlin_tile.cuh"
#include "kernels/cuda/matmul/cuda_matmul.h"
#include "kernels/matmul/marlin_layout.h"
#include "lib/formats/layout.h"

namespace ktx::kernels {
namespace {

constexpr int kWarps = 4;

template <DType kType>
__global__ void __launch_bounds__(32 * kWarps)
    marlin_dequantize(const uint8_t* w, int64_t strip_bytes, int rows, int cols, uint16_t* out) {
  begin_kernel();
  using Tile = MarlinTile<kType>;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int index = static_cast<int>(blockIdx.x) * kWarps + static_cast<int>(threadIdx.x) / 32;
  const MarlinTiles<Tile> tiles(cols);
  if (index >= tiles.count) return;
  const int strip = static_cast<int>(blockIdx.y);
  Tile tile;
  tile.template load<true>(w + strip * strip_bytes + tiles.offset(index), tiles.spans(index), lane);
  const int row = strip * 16 + lane / 4;
#pragma unroll
  for (int c = 0; c < 8; ++c) {
    uint32_t a[8];
    tile.fragment(c, a);
    const int64_t col = index * 256 + c * 32 + lane % 4 * 8;
    if (col >= cols) continue;
    if (row < rows) {
      *reinterpret_cast<uint4*>(out + int64_t{row} * cols + col) = {a[0], a[2], a[4], a[6]};
    }
    if (row + 8 < rows) {
      *reinterpret_cast<uint4*>(out + (int64_t{row} + 8) * cols + col) = {a[1], a[3], a[5], a[7]};
    }
  }
}

}  // namespace

Status launch_dequantize(const CudaDequantizeArgs& a, CudaStream stream) {
  if (a.w.layout != Layout::Marlin) return Error{"dequantize takes marlin weights only"};
  const dim3 grid(static_cast<unsigned>(ceil_div<int64_t>(a.w.cols, 256 * kWarps)),
                  static_cast<unsigned>(ceil_div<int64_t>(a.w.rows, 16)));
  return for_marlin_type<Status>(
      a.w.dtype, Error{"not a format of marlin weights"}, [&]<DType kType>() {
        return launch("dequantize", marlin_dequantize<kType>, grid, 32 * kWarps, 0, stream,
                      reinterpret_cast<const uint8_t*>(a.w.data),
                      marlin_strip_bytes(a.w.dtype, a.w.cols), static_cast<int>(a.w.rows),
                      static_cast<int>(a.w.cols), a.out);
      });
}

}  // namespace ktx::kernels

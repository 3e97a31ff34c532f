// launch_retile (cuda_retile.h): a thread has the blocks of rows g and g + 8 at one place of a
// strip in registers; the eight threads of a place read 64 bytes that stand together. Roofline:
// each byte read and written once.
#include "kernels/cuda/common/cuda_launch.cuh"
#include "kernels/cuda/common/mma.cuh"
#include "kernels/cuda/marlin/cuda_retile.h"
#include "kernels/matmul/retile.h"
#include "kernels/matmul/retile_blocks.h"
#include "lib/formats/layout.h"

namespace ktx::kernels {
namespace {

constexpr int kThreads = 128;

template <DType kType, Layout kFrom>
__global__ void __launch_bounds__(kThreads) retile(CudaRetileArgs a) {
  begin_kernel();
  using Block = typename RetileForm<kType>::Block;
  const int64_t index = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  const int64_t blocks = retile_row_blocks<kType>(a.cols);
  const int64_t place = index / 8, strip = place / blocks;
  if (strip >= a.strips) return;
  const int64_t panel_bytes = a.cols / MarlinForm<Block>::kElems * int64_t{sizeof(Block)} * 16;
  retile_blocks<kType, kFrom>(a.cols, a.panels + strip * panel_bytes, static_cast<int>(index % 8),
                              place % blocks, a.tiles + strip * strip_bytes<Block>(a.cols));
}

template <DType kType, Layout kFrom>
Status run(const CudaRetileArgs& a, CudaStream stream) {
  const int64_t threads = a.strips * retile_row_blocks<kType>(a.cols) * 8;
  const dim3 grid(static_cast<unsigned>(ceil_div<int64_t>(threads, kThreads)));
  return launch("retile", retile<kType, kFrom>, grid, kThreads, 0, stream, a);
}

}  // namespace

Status launch_retile(const CudaRetileArgs& a, CudaStream stream) {
  if (!retile_takes(a.dtype, a.from)) {
    return Error{"retile takes no " + std::string(name(a.dtype)) + " in layout " +
                 std::string(name(a.from))};
  }
  return for_marlin_type<Status>(a.dtype, Error{"not a format of marlin weights"},
                                 [&]<DType kType>() -> Status {
                                   if constexpr (kHasStream<kType>) {
                                     if (a.from == Layout::Panel16Stream)
                                       return run<kType, Layout::Panel16Stream>(a, stream);
                                   }
                                   return run<kType, Layout::Panel16>(a, stream);
                                 });
}

}  // namespace ktx::kernels

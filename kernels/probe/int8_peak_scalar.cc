#include "kernels/kernel_table.h"
#include "kernels/probe/int8_peak.h"

namespace ktx::kernels {

int64_t int8_peak_scalar(int64_t rounds, int32_t* sink);
int64_t int8_peak_avx2(int64_t rounds, int32_t* sink);
int64_t int8_peak_avx512(int64_t rounds, int32_t* sink);
int64_t int8_peak_neon(int64_t rounds, int32_t* sink);
int64_t int8_peak_dotprod(int64_t rounds, int32_t* sink);

int64_t int8_peak_scalar(int64_t rounds, int32_t* sink) {
  int32_t sums[4] = {0, 1, 2, 3};
  for (int64_t i = 0; i < rounds; ++i) {
    const auto a = static_cast<uint8_t>(i);
    const auto b = static_cast<int8_t>(i >> 8);
    for (int32_t& sum : sums) sum = static_cast<int32_t>((sum + a * b) & 0xFFFFFF);
  }
  *sink = sums[0] ^ sums[1] ^ sums[2] ^ sums[3];
  return rounds * 4 * 2;
}

Int8PeakFn find_int8_peak(Isa isa) {
  constexpr KernelRow<Int8PeakFn> kRows[] = {
    {"int8_peak", Isa::Scalar, int8_peak_scalar},
#if defined(__x86_64__)
    {"int8_peak", Isa::Avx2, int8_peak_avx2},
    {"int8_peak", Isa::Avx512, int8_peak_avx512},
#else
    {"int8_peak", Isa::Neon, int8_peak_neon},
    {"int8_peak", Isa::Dotprod, int8_peak_dotprod},
#endif
  };
  return *pick_kernel<Int8PeakFn>(kRows, "int8_peak", isa);
}

}  // namespace ktx::kernels

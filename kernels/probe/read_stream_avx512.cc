#include <immintrin.h>

#include "kernels/probe/read_stream.h"

namespace ktx::kernels {

uint64_t read_stream_avx512(const std::byte* data, size_t bytes);

uint64_t read_stream_avx512(const std::byte* data, size_t bytes) {
  constexpr size_t kAhead = 4096;
  __m512i sums[8];
  for (__m512i& sum : sums) sum = _mm512_setzero_si512();
  for (size_t at = 0; at < bytes; at += 512) {
    for (size_t i = 0; i < 8; ++i) {
      // A prefetch past the end is no access.
      _mm_prefetch(reinterpret_cast<const char*>(data) + at + kAhead + 64 * i, _MM_HINT_T0);
      sums[i] = _mm512_xor_si512(sums[i], _mm512_loadu_si512(data + at + 64 * i));
    }
  }
  for (int i = 1; i < 8; ++i) sums[0] = _mm512_xor_si512(sums[0], sums[i]);
  return static_cast<uint64_t>(_mm512_reduce_add_epi64(sums[0]));
}

}  // namespace ktx::kernels

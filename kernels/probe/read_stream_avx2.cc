#include "kernels/probe/read_stream.h"
#include "kernels/simd/avx2.h"

namespace ktx::kernels {

uint64_t read_stream_avx2(const std::byte* data, size_t bytes);

uint64_t read_stream_avx2(const std::byte* data, size_t bytes) {
  constexpr size_t kAhead = 4096;
  __m256i sums[8];
  for (__m256i& sum : sums) sum = _mm256_setzero_si256();
  for (size_t at = 0; at < bytes; at += 256) {
    for (size_t i = 0; i < 8; ++i) {
      if (i % 2 == 0) {  // a prefetch past the end is no access
        _mm_prefetch(reinterpret_cast<const char*>(data) + at + kAhead + 32 * i, _MM_HINT_T0);
      }
      const auto* line = reinterpret_cast<const __m256i*>(data + at + 32 * i);
      sums[i] = _mm256_xor_si256(sums[i], _mm256_loadu_si256(line));
    }
  }
  for (int i = 1; i < 8; ++i) sums[0] = _mm256_xor_si256(sums[0], sums[i]);
  return static_cast<uint64_t>(_mm256_extract_epi64(sums[0], 0)) ^
         static_cast<uint64_t>(_mm256_extract_epi64(sums[0], 3));
}

}  // namespace ktx::kernels

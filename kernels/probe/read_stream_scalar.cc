#include "kernels/built_for.h"
#include "kernels/kernel_table.h"
#include "kernels/probe/read_stream.h"

#include <cstring>

namespace ktx::kernels {

uint64_t read_stream_scalar(const std::byte* data, size_t bytes);
uint64_t read_stream_avx2(const std::byte* data, size_t bytes);
uint64_t read_stream_avx512(const std::byte* data, size_t bytes);

uint64_t read_stream_scalar(const std::byte* data, size_t bytes) {
  uint64_t sums[8] = {};
  for (size_t at = 0; at < bytes; at += sizeof sums) {
    for (size_t lane = 0; lane < 8; ++lane) {
      uint64_t word;
      std::memcpy(&word, data + at + 8 * lane, sizeof word);
      sums[lane] ^= word;
    }
  }
  uint64_t all = 0;
  for (uint64_t sum : sums) all ^= sum;
  return all;
}

ReadStreamFn find_read_stream(Isa isa) {
  constexpr KernelRow<ReadStreamFn> kRows[] = {
      {"read_stream", Isa::Scalar, read_stream_scalar},
      {"read_stream", Isa::Avx2, read_stream_avx2},
      KTX_BUILT(Avx512, {"read_stream", Isa::Avx512, read_stream_avx512}, )};
  return *pick_kernel<ReadStreamFn>(kRows, "read_stream", isa);
}

}  // namespace ktx::kernels

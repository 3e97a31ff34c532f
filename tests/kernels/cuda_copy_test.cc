// Copies by a kernel between GPU memory and pinned memory of the host.
#include "kernels/cuda/common/cuda_copy.h"

#include <numeric>

#include "tests/kernels/cuda_cases.h"

namespace ktx::kernels {
namespace {

using CudaCopy = CudaTest;

TEST_F(CudaCopy, EverySizeArrivesWholeAndNothingBehindIt) {
  constexpr size_t kRoom = 70000;
  for (const bool to_host : {true, false}) {
    for (const size_t offset : {size_t{0}, size_t{4}, size_t{16}}) {
      std::byte* host = nullptr;
      ASSERT_EQ(cudaMallocHost(reinterpret_cast<void**>(&host), kRoom), cudaSuccess);
      std::vector<std::byte> numbers(kRoom);
      for (size_t i = 0; i < kRoom; ++i) numbers[i] = static_cast<std::byte>(i * 31 + i / 256);
      Gpu<std::byte> gpu(kRoom);
      std::vector<std::byte> want(kRoom, std::byte{7});
      ASSERT_EQ(cudaMemcpy(gpu.data(), (to_host ? numbers : want).data(), kRoom, cudaMemcpyDefault),
                cudaSuccess);
      std::memcpy(host, (to_host ? want : numbers).data(), kRoom);
      CudaCopies args;
      size_t at = 16;
      for (const size_t bytes : {4, 12, 16, 20, 32, 4096, 8192 + 4, 36000}) {
        std::byte* from = (to_host ? gpu.data() : host) + at;
        std::byte* to = (to_host ? host : gpu.data()) + at + offset;
        args.copies[args.count++] = {to, from, static_cast<int64_t>(bytes)};
        std::memcpy(want.data() + at + offset, numbers.data() + at, bytes);
        at += (bytes + 2 * 16) / 16 * 16 + 16;
      }
      ASSERT_EQ(args.count, CudaCopies::kMost);
      ASSERT_TRUE(ran(launch_copies(args, nullptr)));
      const std::vector<std::byte> got =
          to_host ? std::vector<std::byte>(host, host + kRoom) : gpu.read();
      EXPECT_EQ(got, want) << (to_host ? "to the host" : "to the GPU") << ", offset " << offset;
      cudaFreeHost(host);
    }
  }
}

}  // namespace
}  // namespace ktx::kernels

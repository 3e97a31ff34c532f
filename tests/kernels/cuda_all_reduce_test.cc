// Sums over two GPUs, or over two queues of one: over each other's memory and by way of the host's.
#include "kernels/cuda/common/cuda_all_reduce.h"

#include <algorithm>
#include <cstdio>
#include <memory>

#include "tests/kernels/cuda_cases.h"

namespace ktx::kernels {
namespace {

constexpr int64_t kMostElems = 1 << 20;

// One of two that add up.
struct Member {
  int device = 0;
  cudaStream_t stream = nullptr;
  CudaTeamMemory* memory = nullptr;
  CudaTeam team;
  float *part = nullptr, *y = nullptr;
};

class CudaAllReduce : public CudaTest, public ::testing::WithParamInterface<bool> {
 protected:
  void SetUp() override {
    CudaTest::SetUp();
    if (IsSkipped()) return;
    int devices = 0;
    cudaGetDeviceCount(&devices);
    two_ = devices > 1;
    int reaches = 0;
    if (two_) cudaDeviceCanAccessPeer(&reaches, 0, 1);
    if (two_ && !by_host() && reaches == 0) GTEST_SKIP() << "GPUs that do not reach each other";
    for (int rank = 0; rank < 2; ++rank) make(members_[rank], two_ ? rank : 0);
    for (int rank = 0; rank < 2; ++rank) {
      Member& m = members_[rank];
      m.team.gpus = 2;
      m.team.rank = rank;
      m.team.by_host = by_host();
      m.team.missing = missing_;
      for (int r = 0; r < 2; ++r) m.team.memory[r] = members_[r].memory;
      cudaSetDevice(m.device);
      if (two_ && !by_host()) cudaDeviceEnablePeerAccess(1 - rank, 0);
      (void)cudaGetLastError();
    }
  }
  void make(Member& m, int device) {
    m.device = device;
    cudaSetDevice(device);
    if (missing_ == nullptr) {
      ASSERT_EQ(cudaHostAlloc(reinterpret_cast<void**>(&missing_), 4, cudaHostAllocPortable),
                cudaSuccess);
      *missing_ = 0;
    }
    ASSERT_EQ(cudaStreamCreateWithFlags(&m.stream, cudaStreamNonBlocking), cudaSuccess);
    if (by_host()) {
      ASSERT_EQ(cudaHostAlloc(reinterpret_cast<void**>(&m.memory), sizeof(CudaTeamMemory),
                              cudaHostAllocPortable | cudaHostAllocMapped),
                cudaSuccess);
    } else {
      ASSERT_EQ(cudaMalloc(reinterpret_cast<void**>(&m.memory), sizeof(CudaTeamMemory)),
                cudaSuccess);
    }
    ASSERT_EQ(cudaMemset(m.memory, 0, sizeof(CudaTeamMemory)), cudaSuccess);
    ASSERT_EQ(cudaMalloc(reinterpret_cast<void**>(&m.team.counts), sizeof(CudaTeamCounts)),
              cudaSuccess);
    ASSERT_EQ(cudaMemset(m.team.counts, 0, sizeof(CudaTeamCounts)), cudaSuccess);
    for (float** data : {&m.part, &m.y}) {
      ASSERT_EQ(cudaMalloc(reinterpret_cast<void**>(data), kMostElems * sizeof(float)),
                cudaSuccess);
    }
  }
  void TearDown() override {
    for (Member& m : members_) {
      cudaSetDevice(m.device);
      if (m.stream) cudaStreamDestroy(m.stream);
      by_host() ? cudaFreeHost(m.memory) : cudaFree(m.memory);
      for (void* data : {static_cast<void*>(m.team.counts), static_cast<void*>(m.part),
                         static_cast<void*>(m.y)}) {
        cudaFree(data);
      }
    }
    cudaFreeHost(missing_);
    cudaSetDevice(0);
  }

  bool by_host() const { return GetParam(); }

  // `parts`: ranks that have one.
  void add(int64_t elems, bool accumulate, const std::vector<int>& parts) {
    for (Member& m : members_) {
      cudaSetDevice(m.device);
      CudaAllReduceArgs args{.y = m.y, .accumulate = accumulate, .elems = elems};
      for (const int rank : parts) {
        args.parts[args.count] = members_[rank].part;
        args.ranks[args.count++] = rank;
      }
      const Status queued = launch_all_reduce(args, m.team, m.stream);
      ASSERT_TRUE(queued.ok()) << queued.error().message;
    }
  }
  // Copies and fills of a GPU's memory, which another one's device may not wait for.
  void settle() {
    for (const Member& m : members_) {
      cudaSetDevice(m.device);
      cudaDeviceSynchronize();
    }
  }
  void finish() {
    for (Member& m : members_) {
      cudaSetDevice(m.device);
      ASSERT_EQ(cudaStreamSynchronize(m.stream), cudaSuccess);
    }
    ASSERT_EQ(*missing_, 0u) << "one did not come";
  }

  bool two_ = false;
  Member members_[2];
  uint32_t* missing_ = nullptr;
};

TEST_P(CudaAllReduce, BothHaveTheBitsOfTheSumInOrder) {
  Random random(41);
  // On one GPU, over its own memory, only sizes that leave room for both kernels.
  std::vector<int64_t> sizes = {2, 64, 4096, 8190, kMostSmallSum};
  if (two_ || by_host()) sizes.insert(sizes.end(), {kMostSmallSum + 64, kMostElems});
  if (!by_host()) sizes.push_back(4097);
  for (int round = 0; round < 3; ++round) {
    for (const int64_t elems : sizes) {
      for (const std::vector<int>& parts : std::vector<std::vector<int>>{{0, 1}, {0}, {1}}) {
        const bool one_gpu = !two_ && !by_host();
        if (one_gpu && parts.size() == 1 && elems > 8192) continue;
        const bool accumulate = (elems + round) % 3 != 0;
        const auto n = static_cast<size_t>(elems);
        std::vector<float> part[2], y(n);
        for (auto& p : part) p.resize(n);
        for (size_t i = 0; i < n; ++i) {
          y[i] = random.uniform(-1, 1);
          for (auto& p : part) p[i] = random.uniform(-1, 1);
        }
        for (int rank = 0; rank < 2; ++rank) {
          const Member& m = members_[rank];
          cudaSetDevice(m.device);
          cudaMemcpy(m.part, part[rank].data(), n * 4, cudaMemcpyDefault);
          cudaMemcpy(m.y, y.data(), n * 4, cudaMemcpyDefault);
        }
        settle();
        add(elems, accumulate, parts);
        finish();
        std::vector<float> want(n);
        for (size_t i = 0; i < n; ++i) {
          want[i] = accumulate ? y[i] : 0;
          for (const int rank : parts) want[i] += part[rank][i];
        }
        for (const Member& m : members_) {
          std::vector<float> got(n);
          cudaMemcpy(got.data(), m.y, n * 4, cudaMemcpyDefault);
          ASSERT_EQ(got, want) << elems << " elements, " << parts.size() << " parts";
        }
      }
    }
  }
}

// Sums follow each other without the host: none may write where another is still read. Prints what
// one takes.
TEST_P(CudaAllReduce, FollowEachOther) {
  for (const int64_t elems : {int64_t{4096}, int64_t{8192}, kMostSmallSum, int64_t{1} << 18}) {
    if (!two_ && elems > kMostSmallSum) continue;
    constexpr int kSums = 64;
    const std::vector<float> ones(static_cast<size_t>(elems), 1.0f);
    for (const Member& m : members_) {
      cudaSetDevice(m.device);
      cudaMemcpy(m.part, ones.data(), ones.size() * 4, cudaMemcpyDefault);
      cudaMemset(m.y, 0, ones.size() * 4);
    }
    settle();
    cudaSetDevice(members_[0].device);
    cudaEvent_t begin = nullptr, end = nullptr;
    cudaEventCreate(&begin);
    cudaEventCreate(&end);
    add(elems, true, {0, 1});
    cudaSetDevice(members_[0].device);
    cudaEventRecord(begin, members_[0].stream);
    for (int i = 1; i < kSums; ++i) add(elems, true, {0, 1});
    cudaSetDevice(members_[0].device);
    cudaEventRecord(end, members_[0].stream);
    finish();
    float ms = 0;
    cudaEventElapsedTime(&ms, begin, end);
    std::printf("%s, %d GPUs: %lld floats %.1f us\n", by_host() ? "host memory" : "peer memory",
                two_ ? 2 : 1, static_cast<long long>(elems), ms * 1e3 / (kSums - 1));
    cudaEventDestroy(begin);
    cudaEventDestroy(end);
    for (const Member& m : members_) {
      std::vector<float> got(ones.size());
      cudaMemcpy(got.data(), m.y, got.size() * 4, cudaMemcpyDefault);
      EXPECT_TRUE(std::ranges::all_of(got, [](float y) { return y == 2.0f * kSums; })) << elems;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Over, CudaAllReduce, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "HostMemory" : "PeerMemory"; });

}  // namespace
}  // namespace ktx::kernels

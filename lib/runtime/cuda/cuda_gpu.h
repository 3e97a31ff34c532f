// A GPU through the CUDA runtime: one stream for all work except the upload of weights.
#pragma once

#include <cuda_runtime_api.h>

#include <vector>

#include "kernels/cuda/common/cuda_all_reduce.h"
#include "lib/runtime/gpu/gpu.h"

namespace ktx::runtime {

class CudaGpu final : public Gpu {
 public:
  // Fails without a driver, without this GPU, or when another process owns it exclusively.
  static Result<std::unique_ptr<Gpu>> open(int number);
  ~CudaGpu() override;

  const GpuFacts& facts() const override { return facts_; }
  Result<GpuMemory> allocate(uint64_t bytes, const char* what) override;
  uint64_t free_bytes() override;
  Result<std::byte*> allocate_host(uint64_t bytes) override;
  void free_host(std::byte* data) override;
  Status pin(std::byte* data, uint64_t bytes) override;
  Status pin_read_only(const std::byte* data, uint64_t bytes) override;
  void unpin(const std::byte* data) override;
  Status upload(std::byte* to, const std::byte* from, uint64_t bytes) override;
  Status upload_beside(std::byte* to, const std::byte* from, uint64_t bytes, GpuMark done) override;
  Status download(std::byte* to, const std::byte* from, uint64_t bytes) override;
  Status copy(std::byte* to, const std::byte* from, uint64_t bytes) override;
  Status copy_from(Gpu& other, std::byte* to, const std::byte* from, uint64_t bytes) override;
  Status clear(std::byte* data, uint64_t bytes) override;
  Status add(float* to, const float* from, int64_t rows, int64_t width) override;
  Result<bool> reaches(Gpu& other) override;
  Result<bool> join_team(std::span<Gpu* const> team, size_t rank, bool by_host) override;
  Status sum(const GpuSum& sum) override;
  Status copy_small(std::span<const GpuCopy> copies) override;
  Result<GpuMark> new_mark() override;
  Status set(GpuMark mark) override;
  Status wait(GpuMark mark) override;
  Result<bool> passed(GpuMark mark) override;
  Status queue_after(GpuMark mark) override;
  Status uploads_after(GpuMark mark) override;
  Status retile(const GpuRetile& weights) override;
  Status finish() override;
  Status stamp(int64_t number, GpuLane lane) override;
  Result<double> stamp_seconds(int64_t number) override;
  Status start_cublas() override;
  Status check_links() override;
  Result<GpuLinkId> new_link_id() override;
  Result<std::unique_ptr<GpuLink>> link(const GpuLinkId& id, bool sends,
                                        const std::function<bool()>& gives_up) override;
  Status begin_capture() override;
  Result<std::unique_ptr<GpuGraph>> end_capture() override;
  Status launch(GpuGraph& graph) override;
  Status find_best(const GpuBestLogits& args) override;
  int64_t find_best_bytes(const GpuBestLogits& args) const override;
  Result<std::unique_ptr<GpuStep>> make_launch(const GpuBindContext& context,
                                               std::span<GpuStep* const> members) override;

  // Makes this GPU the calling thread's, for the launchers of kernels.
  void use() const { cudaSetDevice(number_); }
  cudaStream_t stream() const { return stream_; }

 private:
  explicit CudaGpu(int number) : number_(number) {}
  void free(std::byte* data) override;

  int number_ = 0;
  GpuFacts facts_;
  cudaStream_t stream_ = nullptr;
  cudaStream_t uploads_ = nullptr;
  Result<kernels::CudaTeamMemory*> team_memory(bool by_host);

  std::vector<cudaEvent_t> marks_;
  GpuMemory team_memory_;  // its CudaTeamMemory, where the others reach it
  kernels::CudaTeamMemory* team_host_memory_ = nullptr;  // that of the host in its place
  GpuMemory team_counts_;
  kernels::CudaTeam team_;
  std::vector<int> team_numbers_;  // of GPUs, by rank
  std::vector<cudaEvent_t> stamps_;
  cudaEvent_t peer_ = nullptr;  // for copies between GPUs
};

}  // namespace ktx::runtime

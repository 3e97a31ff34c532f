// Steps of one token as one persistent kernel (kernels/cuda/cuda_persistent.h), where it is quicker:
//
//   KTX_CUDA_PERSISTENT   steps with routed experts        others
//   unset, auto           up to 1024 positions, else       by launches
//                         by launches
//   0                     by launches                      by launches
//   1                     always                           always
#include <algorithm>
#include <limits>
#include <string>
#include <vector>

#include "lib/runtime/cuda/cuda_steps.h"
#include "lib/support/env.h"

namespace ktx::runtime {
namespace {

// Fewer gain nothing: one of six phases a layer was as quick as its launches (H200).
constexpr int kFewestPhases = 8;
// Qwen3-30B-A3B on H200: +17 % with 100 positions, -4 % with 4100, where attention is slower in it.
constexpr int64_t kMostPositions = 1024;

class Run final : public GpuStep {
 public:
  Run(CudaGpu& gpu, kernels::CudaPersistent kernel, std::span<GpuStep* const> steps,
      int64_t most_positions)
      : gpu_(gpu),
        kernel_(std::move(kernel)),
        steps_(steps.begin(), steps.end()),
        most_positions_(most_positions) {}
  Status place() {
    memory_ = KTX_TRY(gpu_.allocate(static_cast<uint64_t>(kernel_.device_bytes()),
                                    "phases of the persistent kernel"));
    const std::vector<std::byte> image = kernel_.image(memory_.data());
    KTX_TRY(gpu_.upload(memory_.data(), image.data(), image.size()));
    return gpu_.finish();  // `image` is gone then
  }
  int64_t workspace_bytes(const GpuShape& shape) const override {
    int64_t most = 0;
    for (const GpuStep* step : steps_) most = std::max(most, step->workspace_bytes(shape));
    return most;
  }
  Status launch(const GpuShape& shape, std::byte* workspace, int64_t bytes) override {
    if (shape.max_positions <= most_positions_) {
      gpu_.use();
      return kernel_.launch(memory_.data(), gpu_.stream());
    }
    for (GpuStep* step : steps_) KTX_TRY(step->launch(shape, workspace, bytes));
    return {};
  }

 private:
  CudaGpu& gpu_;
  kernels::CudaPersistent kernel_;
  std::vector<GpuStep*> steps_;  // the same, by launches
  int64_t most_positions_;
  GpuMemory memory_;
};

}  // namespace

Result<GpuRun> make_cuda_run(CudaGpu& gpu, std::span<GpuStep* const> steps) {
  static const std::string wish = env("KTX_CUDA_PERSISTENT").value_or("auto");
  const bool always = wish == "1";
  gpu.use();
  if ((!always && wish != "auto") || !kernels::CudaPersistent::runs()) return GpuRun{};
  kernels::CudaPersistent kernel;
  size_t count = 0;
  while (count < steps.size()) {
    const auto* phases = dynamic_cast<const CudaPhases*>(steps[count]);
    if (!phases || !phases->add_to(kernel)) break;
    ++count;
  }
  if (kernel.phases() < kFewestPhases || (!always && !kernel.has_experts())) return GpuRun{};
  const int64_t most_positions = always ? std::numeric_limits<int64_t>::max() : kMostPositions;
  auto run =
      std::make_unique<Run>(gpu, std::move(kernel), steps.first(count), most_positions);
  KTX_TRY(run->place());
  return GpuRun{std::move(run), count};
}

}  // namespace ktx::runtime

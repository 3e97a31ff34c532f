// Steps of one token as one persistent kernel (kernels/cuda/cuda_persistent.h), where
// KTX_CUDA_PERSISTENT=1 asks for it. By launches they are quicker since attention is one of them
// (H200: Qwen3-30B-A3B 565 t/s instead of 507).
#include <vector>

#include "lib/runtime/cuda/cuda_steps.h"
#include "lib/support/env.h"

namespace ktx::runtime {
namespace {

// Fewer gain nothing: one of six phases a layer was as quick as its launches (H200).
constexpr int kFewestPhases = 8;

class Run final : public GpuStep {
 public:
  Run(CudaGpu& gpu, kernels::CudaPersistent kernel) : gpu_(gpu), kernel_(std::move(kernel)) {}
  Status place() {
    memory_ = KTX_TRY(gpu_.allocate(static_cast<uint64_t>(kernel_.device_bytes()),
                                    "phases of the persistent kernel"));
    const std::vector<std::byte> image = kernel_.image(memory_.data());
    KTX_TRY(gpu_.upload(memory_.data(), image.data(), image.size()));
    return gpu_.finish();  // `image` is gone then
  }
  Status launch(const GpuShape&, std::byte*, int64_t) override {
    gpu_.use();
    return kernel_.launch(memory_.data(), gpu_.stream());
  }

 private:
  CudaGpu& gpu_;
  kernels::CudaPersistent kernel_;
  GpuMemory memory_;
};

}  // namespace

Result<GpuRun> make_cuda_run(CudaGpu& gpu, std::span<GpuStep* const> steps) {
  static const bool wanted = env("KTX_CUDA_PERSISTENT") == "1";
  gpu.use();
  if (!wanted || !kernels::CudaPersistent::runs()) return GpuRun{};
  kernels::CudaPersistent kernel;
  size_t count = 0;
  while (count < steps.size()) {
    const auto* phases = dynamic_cast<const CudaPhases*>(steps[count]);
    if (!phases || !phases->add_to(kernel)) break;
    ++count;
  }
  if (kernel.phases() < kFewestPhases) return GpuRun{};
  auto run = std::make_unique<Run>(gpu, std::move(kernel));
  KTX_TRY(run->place());
  return GpuRun{std::move(run), count};
}

}  // namespace ktx::runtime

#include "lib/runtime/cuda/cuda_check.h"

#include <fmt/format.h>

namespace ktx::runtime {
namespace {

struct Advice {
  cudaError_t code;
  const char* text;
};
constexpr Advice kAdvice[] = {
    {cudaErrorMemoryAllocation, "see nvidia-smi for other programs on this GPU"},
    {cudaErrorInsufficientDriver,
     "there is no NVIDIA driver, or one older than this program's CUDA; install a newer driver, or "
     "compile the plan for the CPU"},
    {cudaErrorNoDevice, "no GPU is visible; see nvidia-smi and CUDA_VISIBLE_DEVICES"},
    {cudaErrorInvalidDevice, "the machine has fewer GPUs than the plan needs"},
    {cudaErrorDevicesUnavailable, "another program has the GPU for itself; see nvidia-smi"},
    {cudaErrorNoKernelImageForDevice,
     "this program has no kernels for the GPU's generation; build it with "
     "-DKTX_CUDA_ARCHITECTURES of this card"},
    {cudaErrorUnsupportedPtxVersion, "install a newer driver"},
    {cudaErrorECCUncorrectable, "the GPU's memory is faulty; see nvidia-smi -q -d ECC"},
    {cudaErrorLaunchFailure, "the GPU is lost to this process; start the program again"},
    {cudaErrorIllegalAddress,
     "a kernel went outside of its memory, which is our bug; run with --check-finite for the step"},
};

}  // namespace

Error cuda_error(cudaError_t code, const std::string& doing) {
  std::string text =
      fmt::format("{}: {} ({})", doing, cudaGetErrorString(code), cudaGetErrorName(code));
  for (const Advice& advice : kAdvice) {
    if (advice.code == code) text += fmt::format("; {}", advice.text);
  }
  return Error{text};
}

}  // namespace ktx::runtime

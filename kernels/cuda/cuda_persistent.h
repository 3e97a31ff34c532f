// One persistent kernel for many steps of one token: a block stays on every processor, and
// between two steps (phases) all blocks meet, instead of one kernel ending and the next one
// starting. What it gains: weights do not depend on the token, so every warp asks for the
// tiles of the coming phases while it waits, and the memory never idles.
//
//   CudaPersistent steps;
//   steps.add(products); steps.add(attention); ...     // false: no phase, begin another kernel
//   image = steps.image(device); copy it to `device`, of steps.device_bytes() bytes
//   steps.launch(device, stream);                      // as often as wanted, one at a time
//
// Each phase computes what its launcher (cuda_one_token.h, cuda_attention.h) does; sums are
// added in another order, which the GPU's count of processors fixes. Needs compute capability
// 9.0 and nothing else running for good on the GPU: blocks wait for each other.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "kernels/cuda/cuda_attention.h"
#include "kernels/cuda/cuda_one_token.h"

namespace ktx::kernels {

class CudaPersistent {
 public:
  // For the current GPU.
  CudaPersistent();
  ~CudaPersistent();
  CudaPersistent(CudaPersistent&&) noexcept;
  CudaPersistent& operator=(CudaPersistent&&) noexcept;

  // Whether this GPU runs it at all.
  static bool runs();

  // Each adds its phases, or nothing: then it says false. What the launcher does not take must
  // not be given.
  bool add(const CudaOneProductsArgs& args);
  bool add(const CudaOneGateUpArgs& args);
  bool add(const CudaOneRouterArgs& args);
  bool add(const CudaOneChoicesArgs& choices, const CudaOneSumArgs& sum);
  bool add(const CudaAttentionArgs& args);  // one token, with `prepare`

  int phases() const;
  int64_t device_bytes() const;
  // What `device` (256-byte aligned) holds before the first launch.
  std::vector<std::byte> image(std::byte* device) const;
  Status launch(std::byte* device, CudaStream stream) const;

 private:
  struct Plan;
  std::unique_ptr<Plan> plan_;
};

}  // namespace ktx::kernels

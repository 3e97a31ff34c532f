// The selective scan with AVX2: the loop of selective_scan_loop.h.
#include "kernels/simd/vec_avx2.h"
// (the policy first: the loop uses its macros)
#include "kernels/state_space/selective_scan_loop.h"

namespace ktx::kernels {

void selective_scan_avx2(const SelectiveScanArgs& a);

void selective_scan_avx2(const SelectiveScanArgs& a) {
  selective_scan<Avx2>(a);
}

}  // namespace ktx::kernels

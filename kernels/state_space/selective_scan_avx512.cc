// The selective scan with AVX-512: the loop of selective_scan_loop.h.
#include "kernels/simd/vec_avx512.h"
// (the policy first: the loop uses its macros)
#include "kernels/state_space/selective_scan_loop.h"

namespace ktx::kernels {

void selective_scan_avx512(const SelectiveScanArgs& a);

void selective_scan_avx512(const SelectiveScanArgs& a) {
  selective_scan<Avx512>(a);
}

}  // namespace ktx::kernels

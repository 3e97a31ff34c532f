// While it lives, results and operands that are subnormal count as zero: what vdpbf16ps
// does always, for the kernels that give its bits without it.
//
// Included by kernels' *_<isa>.cc only.
#pragma once

#include <immintrin.h>

namespace ktx::kernels {
namespace {

class FlushSubnormals {
 public:
  explicit FlushSubnormals(bool on) : before_(_mm_getcsr()) {
    constexpr unsigned kFlushToZero = 0x8000, kZeroOperands = 0x40;
    if (on) _mm_setcsr(before_ | kFlushToZero | kZeroOperands);
  }
  ~FlushSubnormals() { _mm_setcsr(before_); }
  FlushSubnormals(const FlushSubnormals&) = delete;
  FlushSubnormals& operator=(const FlushSubnormals&) = delete;

 private:
  unsigned before_;
};

}  // namespace
}  // namespace ktx::kernels

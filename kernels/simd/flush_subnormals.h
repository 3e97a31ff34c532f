// While it lives, results and operands that are subnormal count as zero: what vdpbf16ps
// does always, for the kernels that give its bits without it. (ARM takes a result for subnormal
// before it is rounded, x86 after: where one would be rounded up to the least normal number,
// and there alone, the two differ.)
//
// Included by kernels' *_<isa>.cc only.
#pragma once

#include <cstdint>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace ktx::kernels {
namespace {

class FlushSubnormals {
 public:
  explicit FlushSubnormals(bool on) : before_(control()) {
#if defined(__x86_64__)
    constexpr uint64_t kFlush = 0x8000 | 0x40;  // results, operands
#else
    constexpr uint64_t kFlush = uint64_t{1} << 24;  // FPCR.FZ: both
#endif
    if (on) set_control(before_ | kFlush);
  }
  ~FlushSubnormals() {
    set_control(before_);
  }
  FlushSubnormals(const FlushSubnormals&) = delete;
  FlushSubnormals& operator=(const FlushSubnormals&) = delete;

 private:
#if defined(__x86_64__)
  static uint64_t control() {
    return _mm_getcsr();
  }
  static void set_control(uint64_t bits) {
    _mm_setcsr(static_cast<unsigned>(bits));
  }
#else
  static uint64_t control() {
    uint64_t bits;
    __asm__ volatile("mrs %0, fpcr" : "=r"(bits));
    return bits;
  }
  // (The compiler moves no arithmetic across what may write memory.)
  static void set_control(uint64_t bits) {
    __asm__ volatile("msr fpcr, %0" : : "r"(bits) : "memory");
  }
#endif

  uint64_t before_;
};

}  // namespace
}  // namespace ktx::kernels

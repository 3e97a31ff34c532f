// What a 64-bit ARM processor has, as the kernel says.
#include <sys/auxv.h>

#include "lib/target/isa.h"

namespace ktx {

Isa detect_isa() {
  constexpr unsigned long kDotProducts = 1ul << 20;  // HWCAP_ASIMDDP
  return (getauxval(AT_HWCAP) & kDotProducts) != 0 ? Isa::Dotprod : Isa::Neon;
}

bool has_bf16_dots() {
  return false;
}

}  // namespace ktx

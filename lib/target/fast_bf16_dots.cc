#include "lib/target/fast_bf16_dots.h"

#include <cpuid.h>

#include "lib/target/isa.h"

namespace ktx {

bool has_fast_bf16_dots() {
  unsigned int largest_leaf, ebx, ecx, edx;
  if (!has_bf16_dots() || !__get_cpuid(0, &largest_leaf, &ebx, &ecx, &edx)) return false;
  return ebx == signature_AMD_ebx && ecx == signature_AMD_ecx && edx == signature_AMD_edx;
}

}  // namespace ktx

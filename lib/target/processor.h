// Which processor this machine has, for what instruction sets (isa.h) do not say.
#pragma once

#include <string>

namespace ktx {

struct Processor {
  std::string vendor;   // 12 characters, such as "AuthenticAMD" (CPUID leaf 0)
  unsigned family = 0;  // the extended one (leaf 1)
};

// Read once; an empty vendor where CPUID does not say.
const Processor& this_processor();

}  // namespace ktx

#include "lib/target/processor.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace ktx {
namespace {

Processor read_processor() {
  Processor processor;
#if defined(__x86_64__)
  unsigned eax, ebx, ecx, edx;
  if (!__get_cpuid(0, &eax, &ebx, &ecx, &edx)) return processor;
  for (const unsigned part : {ebx, edx, ecx}) {
    processor.vendor.append(reinterpret_cast<const char*>(&part), sizeof part);
  }
  if (!__get_cpuid(1, &eax, &ebx, &ecx, &edx)) return processor;
  processor.family = eax >> 8 & 0xF;
  if (processor.family == 0xF) processor.family += eax >> 20 & 0xFF;
#endif
  return processor;
}

}  // namespace

const Processor& this_processor() {
  static const Processor processor = read_processor();
  return processor;
}

}  // namespace ktx

#include "lib/target/stream_prefetch.h"

#include <cpuid.h>

#include <cstring>

namespace ktx {
namespace {

struct Row {
  std::string_view vendor;
  unsigned first_family;  // and later ones
  int64_t bytes;
};

// Measured ones alone.
constexpr Row kRows[] = {
    {"AuthenticAMD", 0x1A, 6144},  // Zen 5: 4,608 gave 0.97 of it, 8,192 gave 0.98
};

int64_t of_this_machine() {
  unsigned eax, ebx, ecx, edx;
  if (!__get_cpuid(0, &eax, &ebx, &ecx, &edx)) return 0;
  char vendor[12];
  std::memcpy(vendor, &ebx, 4);
  std::memcpy(vendor + 4, &edx, 4);
  std::memcpy(vendor + 8, &ecx, 4);
  if (!__get_cpuid(1, &eax, &ebx, &ecx, &edx)) return 0;
  unsigned family = eax >> 8 & 0xF;
  if (family == 0xF) family += eax >> 20 & 0xFF;
  return stream_prefetch_bytes(std::string_view(vendor, sizeof(vendor)), family);
}

}  // namespace

int64_t stream_prefetch_bytes(std::string_view vendor, unsigned family) {
  for (const Row& row : kRows) {
    if (vendor == row.vendor && family >= row.first_family) return row.bytes;
  }
  return 0;
}

int64_t stream_prefetch_bytes() {
  static const int64_t bytes = of_this_machine();
  return bytes;
}

}  // namespace ktx

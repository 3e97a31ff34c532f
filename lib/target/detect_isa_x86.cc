// What an x86-64 processor has, by CPUID and XCR0.
#include <sys/syscall.h>
#include <unistd.h>

#include "lib/target/isa.h"

namespace ktx {
namespace {

struct Cpuid {
  uint32_t eax, ebx, ecx, edx;
};

Cpuid cpuid(uint32_t leaf, uint32_t subleaf) {
  Cpuid r{};
  __asm__ volatile("cpuid"
                   : "=a"(r.eax), "=b"(r.ebx), "=c"(r.ecx), "=d"(r.edx)
                   : "a"(leaf), "c"(subleaf));
  return r;
}

// The register state that the operating system saves (XCR0).
uint64_t saved_state() {
  constexpr uint32_t kOsxsave = 1u << 27;
  if (!(cpuid(1, 0).ecx & kOsxsave)) return 0;
  uint32_t low, high;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return uint64_t{high} << 32 | low;
}

bool has_all(uint64_t value, uint64_t bits) {
  return (value & bits) == bits;
}

constexpr uint64_t kYmmState = 0x6;       // XMM, YMM
constexpr uint64_t kZmmState = 0xE6;      // and opmask, the upper halves, ZMM16-31
constexpr uint64_t kTileState = 0x60000;  // tile configuration and data

bool has_avx2(uint64_t state) {
  constexpr uint32_t kFma = 1u << 12, kF16c = 1u << 29;  // leaf 1, ecx
  constexpr uint32_t kAvx2 = 1u << 5, kBmi2 = 1u << 8;   // leaf 7, ebx
  return has_all(state, kYmmState) && cpuid(0, 0).eax >= 7 &&
         has_all(cpuid(1, 0).ecx, kFma | kF16c) && has_all(cpuid(7, 0).ebx, kAvx2 | kBmi2);
}

bool has_avx512(uint64_t state) {
  constexpr uint32_t kF = 1u << 16, kDq = 1u << 17, kBw = 1u << 30, kVl = 1u << 31;  // ebx
  constexpr uint32_t kVnni = 1u << 11;                                               // ecx
  const Cpuid leaf = cpuid(7, 0);
  return has_all(state, kZmmState) && has_all(leaf.ebx, kF | kDq | kBw | kVl) &&
         has_all(leaf.ecx, kVnni);
}

bool has_amx(uint64_t state) {
  constexpr uint32_t kBf16 = 1u << 22, kTile = 1u << 24, kInt8 = 1u << 25;  // edx
  if (!has_all(state, kTileState)) return false;
  if (!has_all(cpuid(7, 0).edx, kBf16 | kTile | kInt8)) return false;
  constexpr long kRequestPermission = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

}  // namespace

Isa detect_isa() {
  const uint64_t state = saved_state();
  if (!has_avx2(state)) return Isa::Scalar;
  if (!has_avx512(state)) return Isa::Avx2;
  return has_amx(state) ? Isa::Amx : Isa::Avx512;
}

bool has_bf16_dots() {
  constexpr uint32_t kBf16 = 1u << 5;  // leaf 7.1, eax
  return has_avx512(saved_state()) && cpuid(7, 0).eax >= 1 && has_all(cpuid(7, 1).eax, kBf16);
}

}  // namespace ktx

#include "lib/target/isa.h"

#include <fmt/format.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "lib/support/strings.h"

namespace ktx {
namespace {

constexpr IsaInfo kIsas[] = {
#define KTX_ISA(id, name, needs) {Isa::id, name, needs},
#include "lib/target/isa.def"
#undef KTX_ISA
};

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

std::span<const IsaInfo> all_isas() {
  return kIsas;
}

std::string_view name(Isa isa) {
  return kIsas[static_cast<size_t>(isa)].name;
}

std::optional<Isa> isa_from_name(std::string_view name) {
  for (const IsaInfo& row : kIsas) {
    if (row.name == name) return row.isa;
  }
  return std::nullopt;
}

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

Result<Isa> usable_isa(std::string_view wanted) {
  const std::optional<Isa> isa = isa_from_name(wanted);
  if (!isa) {
    std::vector<std::string> names;
    for (const IsaInfo& row : kIsas) names.emplace_back(row.name);
    return Error{fmt::format("unknown instruction set '{}'{}; known are {}", printable(wanted),
                             did_you_mean(std::string(wanted), names), join(names, ", "))};
  }
  const Isa best = detect_isa();
  if (*isa > best) {
    return Error{fmt::format("this machine lacks '{}' ({}); its best is '{}'", wanted,
                             kIsas[static_cast<size_t>(*isa)].needs, name(best))};
  }
  return *isa;
}

}  // namespace ktx

// The instruction sets of this machine, and the one that the kernels use.
//
//   const Isa best = detect_isa();
//   Isa isa = KTX_TRY(usable_isa("avx2"));   // a set by its name, if this machine has it
//
// One answer per process: a plan names kernel families, never instruction sets.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "lib/support/result.h"

namespace ktx {

enum class Isa : uint8_t {
#define KTX_ISA(id, name, kind, needs) id,
#include "lib/target/isa.def"
#undef KTX_ISA
};

enum class ProcessorKind : uint8_t { Any, X86, Arm };

// Whether it is the kind that this program was built for.
constexpr bool is_of_this_kind(ProcessorKind kind) {
#if defined(__x86_64__)
  return kind != ProcessorKind::Arm;
#else
  return kind != ProcessorKind::X86;
#endif
}

struct IsaInfo {
  Isa isa;
  std::string_view name;
  ProcessorKind kind;
  std::string_view needs;
};

std::span<const IsaInfo> all_isas();
std::string_view name(Isa isa);
std::optional<Isa> isa_from_name(std::string_view name);

// The strongest set that the processor and the operating system support. Asks
// the kernel for the AMX tile state (which it grants per process, once).
Isa detect_isa();

// All sets that this machine has, weakest first.
std::vector<Isa> usable_isas();

// Whether AVX-512 here has dot products of BF16 (not part of Isa::Avx512; kernels that
// use them have a variant without, of the same bits).
bool has_bf16_dots();

// The set of that name. Fails when the name is unknown or the machine lacks the set.
Result<Isa> usable_isa(std::string_view name);

}  // namespace ktx

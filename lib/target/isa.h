// The instruction sets of this machine, and the one that the kernels use.
//
//   Isa isa = KTX_TRY(choose_isa());   // the best, or what KTX_FORCE_ISA names
//
// One answer per process: a plan names kernel families, never instruction sets.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "lib/support/result.h"

namespace ktx {

enum class Isa : uint8_t {
#define KTX_ISA(id, name, needs) id,
#include "lib/target/isa.def"
#undef KTX_ISA
};

struct IsaInfo {
  Isa isa;
  std::string_view name;
  std::string_view needs;
};

std::span<const IsaInfo> all_isas();
std::string_view name(Isa isa);
std::optional<Isa> isa_from_name(std::string_view name);

// The strongest set that the processor and the operating system support. Asks
// the kernel for the AMX tile state (which it grants per process, once).
Isa detect_isa();

// Whether AVX-512 here has dot products of BF16 (not part of Isa::Avx512; kernels that
// use them have a variant without, of the same bits).
bool has_bf16_dots();

// detect_isa(), or the set that KTX_FORCE_ISA names. Fails when that name is
// unknown or the machine lacks the set.
Result<Isa> choose_isa();

}  // namespace ktx

// The table of families.
#include "lib/arch/arch_desc.h"

namespace ktx::arch {

#define KTX_ARCH(symbol) extern const ArchDesc symbol;
#include "lib/arch/arch_table.def"
#undef KTX_ARCH

std::span<const ArchDesc* const> all_architectures() {
  static constexpr const ArchDesc* kAll[] = {
#define KTX_ARCH(symbol) &symbol,
#include "lib/arch/arch_table.def"
#undef KTX_ARCH
  };
  return kAll;
}

const ArchDesc* find_family(std::string_view family) {
  for (const ArchDesc* arch : all_architectures()) {
    if (arch->family == family) return arch;
  }
  return nullptr;
}

const ArchDesc* find_model_type(std::string_view model_type) {
  for (const ArchDesc* arch : all_architectures()) {
    for (const char* type : arch->model_types) {
      if (type == model_type) return arch;
    }
  }
  return nullptr;
}

}  // namespace ktx::arch

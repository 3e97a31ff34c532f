#include "lib/target/isa.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <vector>

#include "lib/support/strings.h"

namespace ktx {
namespace {

constexpr IsaInfo kIsas[] = {
#define KTX_ISA(id, name, kind, needs) {Isa::id, name, ProcessorKind::kind, needs},
#include "lib/target/isa.def"
#undef KTX_ISA
};

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

std::vector<Isa> usable_isas() {
  const Isa best = detect_isa();
  std::vector<Isa> isas;
  for (const IsaInfo& row : kIsas) {
    if (is_of_this_kind(row.kind) && row.isa <= best) isas.push_back(row.isa);
  }
  return isas;
}

Result<Isa> usable_isa(std::string_view wanted) {
  const std::optional<Isa> isa = isa_from_name(wanted);
  if (!isa) {
    std::vector<std::string> names;
    for (const IsaInfo& row : kIsas) names.emplace_back(row.name);
    return Error{fmt::format("unknown instruction set '{}'{}; known are {}", printable(wanted),
                             did_you_mean(std::string(wanted), names), join(names, ", "))};
  }
  const std::vector<Isa> usable = usable_isas();
  if (std::ranges::find(usable, *isa) == usable.end()) {
    return Error{fmt::format("this machine lacks '{}' ({}); its best is '{}'", wanted,
                             kIsas[static_cast<size_t>(*isa)].needs, name(usable.back()))};
  }
  return *isa;
}

}  // namespace ktx

// Rows of a kernel table and how one is picked: the strongest instruction set that
// is not above what the machine has. Private to kernels/ and its tests.
#pragma once

#include <fmt/format.h>

#include <span>
#include <string_view>

#include "lib/support/result.h"
#include "lib/target/isa.h"

namespace ktx::kernels {

template <class Fn>
struct KernelRow {
  std::string_view family;
  Isa isa;
  Fn run;
};

template <class Fn>
Result<Fn> pick_kernel(std::span<const KernelRow<Fn>> rows, std::string_view family, Isa isa) {
  const KernelRow<Fn>* best = nullptr;
  for (const KernelRow<Fn>& row : rows) {
    if (row.family == family && row.isa <= isa && (!best || row.isa > best->isa)) best = &row;
  }
  if (best) return best->run;
  return Error{
      fmt::format("no kernel '{}' for this op; the plan is from another version of ktx", family)};
}

}  // namespace ktx::kernels

// gate_up: the matmuls of gate and up, their glu, and the rms_norm before them where nothing else
// reads it.
#include <algorithm>

#include "lib/program/fused/fused_rules.h"

namespace ktx::program {
namespace {

// The steps, and those that read glu's output where that is the value of gate or up.
GroupSearch::Steps with_readers_after(const GroupSearch& search, int32_t value, int32_t glu) {
  GroupSearch::Steps steps = {glu};
  if (search.out(glu) != value) return steps;
  for (int32_t i : search.readers(value)) {
    if (i > glu) steps.push_back(i);
  }
  return steps;
}

}  // namespace

void find_gate_up(GroupSearch& search, int32_t glu) {
  const auto gate = search.writer(search.in(glu, 0), glu);
  const auto up = search.writer(search.in(glu, 1), glu);
  if (!gate || !up || *gate == *up || !search.is_product(*gate) || !search.is_product(*up)) return;
  const int32_t x = search.in(*gate, 0);
  if (search.in(*up, 0) != x) return;
  for (int32_t product : {*gate, *up}) {
    const int32_t value = search.out(product);
    if (!search.only(value, with_readers_after(search, value, glu))) return;
  }
  const auto norm = search.writer(x, std::min(*gate, *up));
  if (norm && search.is_row_norm(*norm) && search.only(x, {*gate, *up, *norm})) {
    search.add(FusedOp::GateUp, {*gate, *up, glu, *norm}, {search.in(*norm, 0)}, {search.out(glu)});
  } else {
    search.add(FusedOp::GateUp, {*gate, *up, glu}, {x}, {search.out(glu)});
  }
}

void describe_gate_up(kernels::GpuForm& form, const GroupMembers& steps) {
  add_products(form, steps);
}

}  // namespace ktx::program

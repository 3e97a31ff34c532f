// router_product: an rms_norm that others read, too, and the matmul of the router. Both outputs are
// stored.
#include "lib/program/fused/fused_rules.h"

namespace ktx::program {

void find_router_product(GroupSearch& search, int32_t norm) {
  if (!search.is_row_norm(norm) || search.in(norm, 0) == search.out(norm)) return;
  const auto users = search.readers_behind(norm);
  if (!users) return;
  for (int32_t i : *users) {
    const int32_t logits = search.out(i);
    if (!search.is_product(i) || search.readers(logits).size() != 1) continue;
    if (search.step(search.readers(logits)[0]).op != StepOp::Router) continue;
    return search.add(FusedOp::RouterProduct, {norm, i}, {search.in(norm, 0)},
                      {search.out(norm), logits});
  }
}

void describe_router_product(kernels::GpuForm& form, const GroupMembers& steps) {
  add_products(form, steps);
}

}  // namespace ktx::program

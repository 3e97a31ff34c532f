// products: an rms_norm and the matmuls that read it, and nothing else does.
#include <algorithm>

#include "kernels/gpu/gpu_limits.h"
#include "lib/program/fused/fused_rules.h"

namespace ktx::program {

void find_products(GroupSearch& search, int32_t norm) {
  if (!search.is_row_norm(norm)) return;
  const auto users = search.readers_behind(norm);
  if (!users || std::ssize(*users) > kernels::kLaunchProducts) return;
  GroupSearch::Steps steps = {norm};
  std::vector<int32_t> written;
  for (int32_t i : *users) {
    if (!search.is_product(i)) return;
    steps.push_back(i);
    written.push_back(search.out(i));
  }
  search.add(FusedOp::Products, steps, {search.in(norm, 0)}, written);
}

void describe_products(kernels::GpuForm& form, const GroupMembers& steps) {
  add_products(form, steps);
}

}  // namespace ktx::program

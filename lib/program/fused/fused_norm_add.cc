// norm_add: an rms_norm behind a block (post-norm) and the addition of its output to the residual
// stream. Nothing else reads what the norm makes.
#include "lib/program/fused/fused_rules.h"

namespace ktx::program {

void find_norm_add(GroupSearch& search, int32_t add) {
  for (size_t normed : {1, 0}) {
    const int32_t n = search.in(add, normed), residual = search.in(add, 1 - normed);
    const auto norm = search.writer(n, add);
    if (!norm || n == residual || !search.is_row_norm(*norm)) continue;
    if (!search.only(n, {*norm, add}) || search.rows(n) != search.rows(search.out(add))) continue;
    std::vector<int32_t> read = {search.in(*norm, 0)};
    if (residual != search.out(add)) read.push_back(residual);
    return search.add(FusedOp::NormAdd, {*norm, add}, read, {search.out(add)});
  }
}

// Any rows: nothing of them decides on a kernel.
void describe_norm_add(kernels::GpuForm&, const GroupMembers&) {}

}  // namespace ktx::program

#include "lib/runtime/cpu/ops/matmul_input.h"

#include <fmt/format.h>

#include "kernels/kernel_id.h"
#include "lib/formats/layout_size.h"

namespace ktx::runtime {

Result<kernels::MatmulKernel> matmul_kernel(const BindContext& context, const BoundWeight& weight,
                                            const BoundView& xq) {
  const kernels::WeightMatrix& w = weight.matrix;
  if (in_panels(w.layout) && weight.matrices > 1 && w.rows % kPanelRows != 0) {
    return Error{fmt::format("matrices of {} rows, no multiple of {}, in layout {}", w.rows,
                             kPanelRows, name(w.layout))};
  }
  const std::string_view family = context.family();
  const kernels::KernelFamily* row = kernels::find_kernel_family(family);
  KTX_TRY(require_layout(family, weight));
  const bool quantised = row && is_product_input(row->input);
  if (quantised && (!xq.data || xq.type != row->input)) {
    return Error{fmt::format("kernel {} needs {} activations, which the step lacks", family,
                             row->input == ValueType::Q8 ? "int8" : "BF16")};
  }
  return kernels::find_matmul(family, w.dtype, context.isa);
}

}  // namespace ktx::runtime

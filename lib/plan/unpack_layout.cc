#include "lib/plan/unpack_layout.h"

#include <fmt/format.h>

#include "kernels/matmul/marlin_blob.h"
#include "kernels/matmul/panel16.h"
#include "lib/formats/layout.h"

namespace ktx::plan {

Status unpack_layout(const BlobRecord& blob, std::span<const std::byte> packed, uint64_t offset,
                     std::span<std::byte> out) {
  const auto dtype = static_cast<DType>(blob.dtype);
  const auto layout = static_cast<Layout>(blob.layout);
  bool clean = false;
  if (in_panels(layout)) {
    clean = kernels::unpack_panel16_range({dtype, blob.rows, blob.cols, blob.matrices, layout},
                                          packed, offset, out);
  } else if (layout == Layout::Marlin) {
    clean = kernels::unpack_marlin_range({dtype, blob.rows, blob.cols, blob.matrices}, packed,
                                         offset, out);
  } else {
    return Error{fmt::format("layout {} cannot be undone here", ktx::name(layout))};
  }
  if (clean) return {};
  return Error{"a weight's padding is not zero; the plan is damaged"};
}

}  // namespace ktx::plan

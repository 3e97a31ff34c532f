#include "lib/formats/layout_size.h"

#include <limits>

namespace ktx {
namespace {

constexpr Panel16Form kPanel16[] = {
#define KTX_PANEL16(id, rest_begin, rest_bytes) {DType::id, rest_begin, rest_bytes},
#include "lib/formats/panel16.def"
#undef KTX_PANEL16
};

}  // namespace

std::optional<Panel16Form> panel16_form(DType dtype) {
  for (const Panel16Form& form : kPanel16) {
    if (form.dtype == dtype) return form;
  }
  return std::nullopt;
}

std::optional<int64_t> matrix_bytes(Layout layout, DType dtype, int64_t rows, int64_t cols) {
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  const std::optional<int64_t> row = row_bytes(dtype, cols);
  if (!has_fixed_size(layout) || !row || *row <= 0 || rows < 0 || rows > kMost - kPanelRows) return std::nullopt;
  if (layout == Layout::Panel16 && (!panel16_form(dtype) || *row > kMaxPanelBytes / kPanelRows)) {
    return std::nullopt;
  }
  const int64_t stored = stored_rows(layout, rows);
  if (stored > kMost / *row) return std::nullopt;
  return stored * *row;
}

}  // namespace ktx

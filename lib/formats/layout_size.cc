#include "lib/formats/layout_size.h"

#include <algorithm>
#include <iterator>
#include <limits>

namespace ktx {
namespace {

constexpr Panel16Form kPanel16[] = {
#define KTX_PANEL16(id, rest_begin, rest_bytes) {DType::id, rest_begin, rest_bytes},
#include "lib/formats/panel16.def"
#undef KTX_PANEL16
};

constexpr DType kPanel16Stream[] = {
#define KTX_PANEL16_STREAM(id) DType::id,
#include "lib/formats/panel16_stream.def"
#undef KTX_PANEL16_STREAM
};

struct Panel16Floats {
  DType dtype;
  int columns;
};
constexpr Panel16Floats kPanel16Floats[] = {
#define KTX_PANEL16_FLOAT(id, columns) {DType::id, columns},
#include "lib/formats/panel16_floats.def"
#undef KTX_PANEL16_FLOAT
};

// Formats with tiles for GPUs (kernels/matmul/marlin_layout.h).
constexpr DType kMarlin[] = {DType::Q4_0,   DType::Q4_1,   DType::Q5_0, DType::Q5_1,
                             DType::Q8_0,   DType::Q4_K,   DType::Q5_K, DType::Q6_K,
                             DType::IQ4_NL, DType::IQ4_XS, DType::MXFP4};
constexpr int64_t kMarlinSpan = 64;  // columns are filled up to whole ones

// Columns that the layout stores; nothing when it does not take the dtype.
std::optional<int64_t> stored_cols(Layout layout, DType dtype, int64_t cols) {
  if (layout != Layout::Marlin) return cols;
  if (std::find(std::begin(kMarlin), std::end(kMarlin), dtype) == std::end(kMarlin)) {
    return std::nullopt;
  }
  return (cols + kMarlinSpan - 1) / kMarlinSpan * kMarlinSpan;
}

}  // namespace

std::optional<Panel16Form> panel16_form(DType dtype) {
  for (const Panel16Form& form : kPanel16) {
    if (form.dtype == dtype) return form;
  }
  return std::nullopt;
}

bool panel16_stream_takes(DType dtype) {
  return std::find(std::begin(kPanel16Stream), std::end(kPanel16Stream), dtype) !=
         std::end(kPanel16Stream);
}

std::optional<int> panel16_float_columns(DType dtype) {
  for (const Panel16Floats& row : kPanel16Floats) {
    if (row.dtype == dtype) return row.columns;
  }
  return std::nullopt;
}

std::optional<int64_t> matrix_bytes(Layout layout, DType dtype, int64_t rows, int64_t cols) {
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  if (cols > kMost - kMarlinSpan || !row_bytes(dtype, cols)) return std::nullopt;
  const std::optional<int64_t> stored_col = stored_cols(layout, dtype, cols);
  const std::optional<int64_t> row = stored_col ? row_bytes(dtype, *stored_col) : std::nullopt;
  if (!row || *row <= 0 || rows < 0 || rows > kMost - kPanelRows) return std::nullopt;
  if (layout == Layout::Panel16 && !panel16_form(dtype) && !panel16_float_columns(dtype)) {
    return std::nullopt;
  }
  if (layout == Layout::Panel16Stream && !panel16_stream_takes(dtype)) return std::nullopt;
  if (layout != Layout::Rows && *row > kMaxPanelBytes / kPanelRows) return std::nullopt;
  const int64_t stored = stored_rows(layout, rows);
  if (stored > kMost / *row) return std::nullopt;
  return stored * *row;
}

}  // namespace ktx

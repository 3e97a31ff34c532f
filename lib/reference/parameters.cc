#include "lib/reference/parameters.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "lib/formats/dtype.h"

namespace ktx::reference {
namespace {

// The bytes of rows [first, first + count) of a tensor, `cols` elements each; empty where it has
// not so many.
std::span<const std::byte> tensor_rows(const input::GgufFile& gguf, const ir::Param& param,
                                       const std::string& name, int64_t first, int64_t count) {
  const input::GgufTensor* tensor = gguf.find(name);
  const auto row = row_bytes(param.dtype, param.cols);
  if (tensor == nullptr || tensor->dtype != param.dtype || !row || tensor->bytes.empty()) return {};
  if (first < 0 || count < 0 || first + count > tensor->elems / param.cols) return {};
  return tensor->bytes.subspan(static_cast<size_t>(first * *row),
                               static_cast<size_t>(count * *row));
}

}  // namespace

int64_t row_count(const input::GgufFile& gguf, const ir::Param& param, const TensorSlice& slice) {
  if (slice.row_count >= 0) return slice.row_count;
  const input::GgufTensor* tensor = gguf.find(slice.tensor);
  return tensor != nullptr ? tensor->elems / param.cols - slice.first_row : -1;
}

Status check_sources(const ir::Param& param, const input::GgufFile& gguf) {
  int64_t rows = 0;
  for (const TensorSlice& slice : param.sources) {
    const int64_t count = row_count(gguf, param, slice);
    if (tensor_rows(gguf, param, slice.tensor, slice.first_row, count).empty()) {
      return Error{
          fmt::format("{}: tensor '{}' does not have the {} rows from {} that the graph "
                      "reads",
                      gguf.path(), slice.tensor, count, slice.first_row)};
    }
    rows += count;
  }
  if (rows == param.rows * param.matrices) return {};
  return Error{fmt::format("{}: {} rows for the {} of '{}'", gguf.path(), rows,
                           param.rows * param.matrices, param.name)};
}

std::vector<float> dequantise(const ir::Param& param, const input::GgufFile& gguf, int64_t first,
                              int64_t count) {
  std::vector<float> out(static_cast<size_t>(count * param.cols));
  float* to = out.data();
  for (const TensorSlice& slice : param.sources) {
    const int64_t rows = row_count(gguf, param, slice);
    const int64_t here = std::clamp<int64_t>(rows - first, 0, count);
    if (here > 0) {
      const auto from = tensor_rows(gguf, param, slice.tensor, slice.first_row + first, here);
      const int64_t elems = here * param.cols;
      if (param.dtype == DType::I32) {  // numbers of experts, as floats
        for (int64_t i = 0; i < elems; ++i) {
          int32_t number;
          std::memcpy(&number, from.data() + 4 * i, sizeof number);
          to[i] = static_cast<float>(number);
        }
      } else {
        dequantize_row(param.dtype, from.data(), elems, to);
      }
      to += elems;
      count -= here;
    }
    first = std::max<int64_t>(first - rows, 0);
  }
  return out;
}

}  // namespace ktx::reference

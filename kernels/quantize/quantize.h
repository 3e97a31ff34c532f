// Rows of activations to int8, the input of matmul_rows_q8, or to BF16, that of
// matmul_panel16_tile_bf16. The bytes of a row and what they mean are in lib/formats/act_q8.h
// and act_bf16.h. Every variant writes the same bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "lib/formats/act_q8.h"
#include "lib/ops/step_attrs.h"
#include "lib/support/result.h"
#include "lib/target/isa.h"

namespace ktx::kernels {

struct QuantizeArgs {
  const float* x = nullptr;  // row r of token t at x + t * x_stride + r * attrs.stride
  int64_t x_stride = 0;      // elements between tokens
  int64_t row_elems = 0;     // K, a multiple of 32
  QuantizeAttrs attrs;
  std::byte* xq = nullptr;  // 64-byte aligned
  int64_t xq_stride = 0;    // bytes between tokens; a token's rows are row bytes of the form apart
  int64_t token_begin = 0;
  int64_t token_end = 0;
  // The elements of each row to do, whole groups of kActQ8Shared; both 0: all. The range that ends
  // at row_elems also writes the padding.
  int64_t elem_begin = 0;
  int64_t elem_end = 0;
};

struct ElementRange {
  int64_t begin = 0;
  int64_t end = 0;
};
inline ElementRange quantize_range(const QuantizeArgs& args) {
  return {args.elem_begin, args.elem_end > 0 ? args.elem_end : args.row_elems};
}
using QuantizeFn = void (*)(const QuantizeArgs&);

// Families: "quantize_q8", "quantize_bf16".
Result<QuantizeFn> find_quantize(std::string_view family, Isa isa);

}  // namespace ktx::kernels

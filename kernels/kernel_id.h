// The names of kernel families: what a plan stores and the runtime looks up.
//
//   choose-kernels:  kernel_family(StepOp::Matmul, Precision::Fast, DType::Q4_K)
//                    == "matmul_rows_q8"
//   bind:            find_matmul("matmul_rows_q8", DType::Q4_K, isa)
//
// A family names op, arithmetic and layout, never an instruction set: the variant is
// picked when the plan is loaded.
#pragma once

#include <optional>
#include <span>
#include <string_view>

#include "lib/formats/dtype.h"
#include "lib/formats/step_ops.h"
#include "lib/support/result.h"

namespace ktx::kernels {

enum class Precision : uint8_t { Exact = 0, Fast = 1 };

struct KernelFamily {
  std::string_view name;
  std::string_view sentence;
};
std::span<const KernelFamily> all_kernel_families();
bool is_kernel_family(std::string_view name);

// The family for a step; "" when there is nothing to do (quantize in exact
// precision). `dtype` is that of the weights (of gate for experts_gate_up; gate and
// up must then agree on whether matmul_q8_takes them, else pass F32), any dtype for
// other ops. `transposed` is that of MatmulHeadsAttrs.
// `layout` is that of the weights; `input` the type of the values that a quantize step
// writes and a product with quantised weights reads in fast precision, Q8 or BF16. BF16
// needs weights that tile_bf16_takes.
std::string_view kernel_family(StepOp op, Precision precision, DType dtype, bool transposed = false,
                               Layout layout = Layout::Rows, ValueType input = ValueType::Q8);

// Whether products with these weights may read BF16 activations.
bool tile_bf16_takes(DType dtype, Layout layout);

// The type of values that a family of products reads, or of quantize writes; nothing for a
// family that takes floats.
std::optional<ValueType> family_input(std::string_view family);

// The layout of weights that a family of products or of embed reads.
Layout family_layout(std::string_view family);

// The family for a step on a GPU, in both precisions; "" for ops that no GPU has.
std::string_view gpu_kernel_family(StepOp op);

}  // namespace ktx::kernels

// Kernel families: the rows of kernel_families.def and rows/row_ops.def. A plan stores a family's
// name and the runtime looks it up.
//
//   choose-kernels:  kernel_family(StepOp::Matmul, Precision::Fast, DType::Q4_K)
//                    == "matmul_rows_q8"
//   bind:            find_matmul("matmul_rows_q8", DType::Q4_K, isa)
//
// A family names op, arithmetic and layout, never an instruction set: the variant is
// picked when the plan is loaded. What a family is stands in its columns; nothing reads it from
// the name.
#pragma once

#include <optional>
#include <span>
#include <string_view>

#include "lib/formats/dtype.h"
#include "lib/formats/layout.h"
#include "lib/ops/step_ops.h"
#include "lib/support/result.h"

namespace ktx::kernels {

enum class Precision : uint8_t { Exact = 0, Fast = 1 };

enum class FamilyDevice : uint8_t { Cpu, Gpu, Any };

// What is computed with: floats, BF16 or F16 operands, int8 dot products, BF16 in the order of
// matrix tiles, floats with the transposed weights; or rows are copied.
enum class Arithmetic : uint8_t { F32, Bf16, F16, Int8, TileBf16, TransposedF32, Copy };

// Weights by kind: Coded are quantised blocks (matmul_q8_takes), Plain what is neither that nor
// BF16.
enum class WeightKinds : uint8_t { None, All, Coded, Bf16, Plain };
bool has(WeightKinds kinds, DType dtype);

struct KernelFamily {
  std::string_view name;
  FamilyDevice device;
  Arithmetic arithmetic;
  WeightKinds weights[2];        // that it takes, by Precision
  ValueType input;               // that a product reads or quantize writes
  std::optional<Layout> layout;  // of the weights; none: any
  std::string_view sentence;
  std::span<const StepOp> ops;
};
std::span<const KernelFamily> all_kernel_families();
const KernelFamily* find_kernel_family(std::string_view name);  // null: no such family

// What choose-kernels knows of a step on the CPU; see kernel_family.
struct FamilyQuery {
  StepOp op;
  Precision precision;
  DType dtype;
  bool transposed = false;
  Layout layout = Layout::Rows;
  ValueType input = ValueType::Q8;
};
bool fits(const KernelFamily& family, const FamilyQuery& step);

// The family for a step on the CPU; "" when there is nothing to do (quantize in exact
// precision) or none fits. `dtype` is that of the weights (of gate for experts_gate_up; gate and
// up must then agree on whether matmul_q8_takes them, else pass F32), any dtype for
// other ops. `transposed` is that of MatmulHeadsAttrs.
// `layout` is that of the weights; `input` the type of the values that a quantize step
// writes and a product with quantised weights reads in fast precision, Q8 or BF16. BF16
// needs weights that tile_bf16_takes.
std::string_view kernel_family(StepOp op, Precision precision, DType dtype, bool transposed = false,
                               Layout layout = Layout::Rows, ValueType input = ValueType::Q8);

// Whether products with these weights may read BF16 activations.
bool tile_bf16_takes(DType dtype, Layout layout);

// The family for a step on a GPU, in both precisions; "" for ops that no GPU has.
std::string_view gpu_kernel_family(StepOp op);

}  // namespace ktx::kernels

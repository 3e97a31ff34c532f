// The step ops as an enum and a table (step_ops.def).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace ktx {

enum class StepOp : uint32_t {
#define KTX_STEP_OP(id, name, attrs, in, out, weights, traits, rule, sentence) id,
#include "lib/ops/step_ops.def"
#undef KTX_STEP_OP
};

// What the rows and columns of an op's operands have to do with each other. Columns of
// inputs of products are read whole.
enum OpTrait : uint32_t {
  kNoTraits = 0,
  kRowWise = 1 << 0,        // row r of the outputs depends on row r of the inputs alone
  kReadsAnyRow = 1 << 1,    // row-wise but for its inputs, of which it reads any row
  kColumnWise = 1 << 2,     // column c depends on column c alone, or on its group's (column_group)
  kSharedScales = 1 << 3,   // column-wise; groups of kActQ8Shared columns share a scale
  kProduct = 1 << 4,        // its items are runs of columns, which column-wise ops may go on with
  kPrelude = 1 << 5,        // too small to share out: one thread runs it
  kInPlace = 1 << 6,        // y may be the first input
  kInPlaceAny = 1 << 7,     // y may be any input
  kAccumulates = 1 << 8,    // may add its result to y (attribute accumulate)
  kReadsPosition = 1 << 9,  // a row op that reads the position of its token
  kStores = 1 << 10,        // writes a KV slot (stored_slot)
};

struct StepOpInfo {
  StepOp op;
  std::string_view name;
  uint32_t attrs_size;  // sizeof its attribute struct
  std::string_view inputs, outputs, weights;
  uint32_t traits;  // of OpTrait
  std::string_view sentence;
  bool has(OpTrait trait) const { return (traits & trait) != 0; }
};

std::span<const StepOpInfo> all_step_ops();
const StepOpInfo& info(StepOp op);
std::optional<StepOp> step_op_from_name(std::string_view name);

// How many of its first weights a product multiplies with; biases follow. 0 of other ops.
constexpr size_t product_weights(StepOp op) {
  if (op == StepOp::ExpertsGateUp) return 2;
  return op == StepOp::Matmul || op == StepOp::MatmulHeads || op == StepOp::ExpertsDown ? 1 : 0;
}

// How many operands a list such as "x xq? order" names, and whether number i may be absent.
int operand_count(std::string_view operands);
bool optional_operand(std::string_view operands, int64_t i);

// Types and row kinds of activations: one row per token of the step, one per
// wanted logits row, or one in all. Q8 and BF16: inputs of products, see act_q8.h and
// act_bf16.h.
enum class ValueType : uint8_t { F32 = 0, I32 = 1, Q8 = 2, BF16 = 3 };
constexpr bool is_product_input(ValueType type) {
  return type == ValueType::Q8 || type == ValueType::BF16;
}

enum class RowKind : uint8_t { Token = 0, Output = 1, Single = 2 };

std::string_view type_name(ValueType type);    // "f32", "i32", "q8", "bf16"
std::string_view row_kind_name(RowKind rows);  // "token", "output", "single"
std::optional<ValueType> type_from_name(std::string_view name);
std::optional<RowKind> row_kind_from_name(std::string_view name);

}  // namespace ktx

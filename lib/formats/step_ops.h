// The step ops as an enum and a table (step_ops.def).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace ktx {

enum class StepOp : uint32_t {
#define KTX_STEP_OP(id, name, attrs, in, out, weights, sentence) id,
#include "lib/formats/step_ops.def"
#undef KTX_STEP_OP
};

struct StepOpInfo {
  StepOp op;
  std::string_view name;
  uint32_t attrs_size;  // sizeof its attribute struct
  std::string_view inputs, outputs, weights;
  std::string_view sentence;
};

std::span<const StepOpInfo> all_step_ops();
const StepOpInfo& info(StepOp op);
std::optional<StepOp> step_op_from_name(std::string_view name);

// How many operands a list such as "x xq? order" names, and how many of them
// must be there (those before the first that may be absent count, in total).
int operand_count(std::string_view operands);
int required_count(std::string_view operands);

// Types and row kinds of activations: one row per token of the step, one per
// wanted logits row, or one in all. Q8 and BF16: inputs of products, see act_q8.h and
// act_bf16.h.
enum class ValueType : uint8_t { F32 = 0, I32 = 1, Q8 = 2, BF16 = 3 };
constexpr bool is_product_input(ValueType type) {
  return type == ValueType::Q8 || type == ValueType::BF16;
}

enum class RowKind : uint8_t { Token = 0, Output = 1, Single = 2 };

enum class Layout : uint16_t {
#define KTX_LAYOUT(id, name, sentence) id,
#include "lib/formats/layout.def"
#undef KTX_LAYOUT
};

struct LayoutInfo {
  Layout layout;
  std::string_view name;
  std::string_view sentence;
};

std::span<const LayoutInfo> all_layouts();
std::string_view name(Layout layout);
std::optional<Layout> layout_from_name(std::string_view name);

}  // namespace ktx

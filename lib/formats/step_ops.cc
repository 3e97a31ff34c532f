#include "lib/formats/step_ops.h"

#include <algorithm>

#include "lib/formats/step_attrs.h"

namespace ktx {
namespace {

constexpr StepOpInfo kStepOps[] = {
#define KTX_STEP_OP(id, name, attrs, in, out, weights, sentence) \
  {StepOp::id, name, sizeof(attrs), in, out, weights, sentence},
#include "lib/formats/step_ops.def"
#undef KTX_STEP_OP
};

constexpr LayoutInfo kLayouts[] = {
#define KTX_LAYOUT(id, name, sentence) {Layout::id, name, sentence},
#include "lib/formats/layout.def"
#undef KTX_LAYOUT
};

}  // namespace

std::span<const StepOpInfo> all_step_ops() {
  return kStepOps;
}

const StepOpInfo& info(StepOp op) {
  return kStepOps[static_cast<uint32_t>(op)];
}

std::optional<StepOp> step_op_from_name(std::string_view name) {
  for (const StepOpInfo& row : kStepOps) {
    if (row.name == name) return row.op;
  }
  return std::nullopt;
}

int operand_count(std::string_view operands) {
  if (operands.empty()) return 0;
  return 1 + static_cast<int>(std::count(operands.begin(), operands.end(), ' '));
}

int required_count(std::string_view operands) {
  return operand_count(operands) -
         static_cast<int>(std::count(operands.begin(), operands.end(), '?'));
}

StepAttrs default_attrs(StepOp op) {
  static const StepAttrs kDefaults[] = {
#define KTX_STEP_OP(id, name, attrs, in, out, weights, sentence) attrs{},
#include "lib/formats/step_ops.def"
#undef KTX_STEP_OP
  };
  return kDefaults[static_cast<uint32_t>(op)];
}

std::span<const LayoutInfo> all_layouts() {
  return kLayouts;
}

std::string_view name(Layout layout) {
  return kLayouts[static_cast<int>(layout)].name;
}

std::optional<Layout> layout_from_name(std::string_view name) {
  for (const LayoutInfo& row : kLayouts) {
    if (row.name == name) return row.layout;
  }
  return std::nullopt;
}

}  // namespace ktx

#include "lib/ops/step_ops.h"

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "lib/ops/step_attrs.h"

namespace ktx {
namespace {

constexpr StepOpInfo kStepOps[] = {
#define KTX_STEP_OP(id, name, attrs, in, out, weights, traits, rule, sentence) \
  {StepOp::id, name, sizeof(attrs), in, out, weights, traits, sentence},
#include "lib/ops/step_ops.def"
#undef KTX_STEP_OP
};

// The bytes of the attributes that the first format had.
template <class Attrs>
constexpr uint32_t first_bytes() {
  if constexpr (requires { Attrs::kFirstBytes; }) return Attrs::kFirstBytes;
  return sizeof(Attrs);
}

constexpr std::string_view kTypeNames[] = {"f32", "i32", "q8", "bf16"};
constexpr std::string_view kRowKindNames[] = {"token", "output", "single"};

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

bool optional_operand(std::string_view operands, int64_t i) {
  for (; i > 0 && !operands.empty(); --i) {
    operands.remove_prefix(std::min(operands.find(' '), operands.size() - 1) + 1);
  }
  return operands.substr(0, operands.find(' ')).ends_with('?');
}

std::string_view type_name(ValueType type) {
  return kTypeNames[static_cast<int>(type)];
}
std::string_view row_kind_name(RowKind rows) {
  return kRowKindNames[static_cast<int>(rows)];
}

std::optional<ValueType> type_from_name(std::string_view name) {
  for (size_t i = 0; i < std::size(kTypeNames); ++i) {
    if (kTypeNames[i] == name) return static_cast<ValueType>(i);
  }
  return std::nullopt;
}

std::optional<RowKind> row_kind_from_name(std::string_view name) {
  for (size_t i = 0; i < std::size(kRowKindNames); ++i) {
    if (kRowKindNames[i] == name) return static_cast<RowKind>(i);
  }
  return std::nullopt;
}

StepAttrs default_attrs(StepOp op) {
  static const StepAttrs kDefaults[] = {
#define KTX_STEP_OP(id, name, attrs, in, out, weights, traits, rule, sentence) attrs{},
#include "lib/ops/step_ops.def"
#undef KTX_STEP_OP
  };
  return kDefaults[static_cast<uint32_t>(op)];
}

StepAttrs attrs_from_bytes(StepOp op, std::span<const std::byte> bytes) {
  StepAttrs attrs = default_attrs(op);
  std::visit([&](auto& a) { a = attrs_from_bytes<std::remove_reference_t<decltype(a)>>(bytes); },
             attrs);
  return attrs;
}

uint32_t stored_bytes(const StepAttrs& attrs) {
  return std::visit(
      [](const auto& a) {
        const std::remove_cvref_t<decltype(a)> defaults;
        const auto* own = reinterpret_cast<const std::byte*>(&a);
        const auto* usual = reinterpret_cast<const std::byte*>(&defaults);
        uint32_t size = sizeof(a);
        while (size > first_bytes<std::remove_cvref_t<decltype(a)>>() &&
               std::memcmp(own + size - 4, usual + size - 4, 4) == 0) {
          size -= 4;
        }
        return size;
      },
      attrs);
}

bool attrs_size_fits(StepOp op, uint64_t bytes) {
  return std::visit(
      [&](const auto& a) {
        return bytes % 4 == 0 && bytes <= sizeof(a) &&
               bytes >= first_bytes<std::remove_cvref_t<decltype(a)>>();
      },
      default_attrs(op));
}

bool accumulates(const StepAttrs& attrs) {
  return std::visit(
      [](const auto& a) {
        if constexpr (requires { a.accumulate; }) return a.accumulate != 0;
        return false;
      },
      attrs);
}

KeptUse kept_by(const StepAttrs& attrs) {
  return std::visit(
      [](const auto& a) {
        KeptUse use;
        if constexpr (requires { a.slot; }) use.slots[0] = a.slot;
        if constexpr (requires { a.entries; }) use.slots[1] = a.entries;
        if constexpr (requires { a.state_floats(); }) {
          use.state = a.state;
          use.state_floats = a.state_floats();
        }
        return use;
      },
      attrs);
}

int32_t stored_slot(StepOp op, const StepAttrs& attrs) {
  const auto [slot, entries] = kept_by(attrs).slots;
  return !info(op).has(kStores) ? -1 : entries >= 0 ? entries : slot;
}

}  // namespace ktx

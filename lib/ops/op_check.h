// The step that a rule checks: its declared operands, weights and attributes, and the first mistake
// found. The checks of lib/ops/checks see nothing else; lib/program/step_verifier.h fills it in.
//
//   void check_sigmoid_scale(OpCheck& s) {
//     const OpOperand& x = s.in(0);
//     s.shape("gate", s.in(1), ValueType::F32, 1, x.rows);   // "gate is 64 wide, expected 1"
//   }
//
// The verifiers check indices first: of values, of elements within their row (shape_limits.h), of
// blobs. The rules are then safe for untrusted plans.
#pragma once

#include <fmt/format.h>

#include <cmath>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "lib/formats/dtype.h"
#include "lib/formats/shape_text.h"
#include "lib/ops/step_attrs.h"
#include "lib/ops/step_ops.h"

namespace ktx {

// Elements [offset, offset + width) of each row of a value; a row is rows_per_row rows of
// value_width elements.
struct OpOperand {
  int64_t value = -1;  // its number; -1: absent
  ValueType type = ValueType::F32;
  RowKind rows = RowKind::Token;
  int64_t rows_per_row = 1;
  int64_t value_width = 0;
  int64_t offset = 0;
  int64_t width = 0;

  bool present() const { return value >= 0; }
  bool whole() const { return offset == 0 && width == value_width * rows_per_row; }
  bool overlaps(const OpOperand& other) const {
    return value == other.value && offset < other.offset + other.width &&
           other.offset < offset + width;
  }
  // The same elements of the same value.
  bool same_as(const OpOperand& other) const {
    return value == other.value && offset == other.offset && width == other.width;
  }
};

// `matrices` matrices of rows x cols weights; 0: absent.
struct OpWeight {
  DType dtype = DType::F32;
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t matrices = 0;
  bool present() const { return matrices != 0; }
};

// A cache of keys and values: heads, and the elements of each; value_dim 0: in the key.
struct KvShape {
  int64_t kv_heads = 0;
  int64_t key_dim = 0;
  int64_t value_dim = 0;
  int64_t window = 0;  // of the cache; 0: all positions
};

// The step that wrote a value last, as output number `output`.
struct Producer {
  int64_t step = -1;
  int64_t output = 0;
  StepOp op = StepOp::Embed;
  StepAttrs attrs;
};

// What holds between steps, as far as the rules of ops ask for it.
struct OpFlow {
  int64_t vocab_size = 0;  // 0: not known
  std::vector<KvShape> kv_slots;
  std::vector<bool> slot_stored;   // per KV slot
  std::vector<bool> state_used;    // per state of a sequence, as far as any is
  std::vector<Producer> producer;  // per value
};

class OpCheck {
 public:
  OpCheck(StepOp op, const StepAttrs& attrs, OpFlow& flow)
      : op(info(op)), step_attrs(attrs), flow(flow) {}

  const StepOpInfo& op;
  StepAttrs step_attrs;
  OpFlow& flow;
  // Not more than the row of step_ops.def names; absent ones at the end may be left out.
  std::vector<OpOperand> inputs, outputs;
  std::vector<OpWeight> weights;
  std::string error;

  bool ok() const { return error.empty(); }
  template <class... Args>
  bool require(bool condition, fmt::format_string<Args...> format, Args&&... args) {
    if (!condition && error.empty()) error = fmt::format(format, std::forward<Args>(args)...);
    return condition;
  }

  const OpOperand& in(size_t i) const { return i < inputs.size() ? inputs[i] : kNoOperand; }
  const OpOperand& out(size_t i) const { return i < outputs.size() ? outputs[i] : kNoOperand; }
  const OpWeight& weight(size_t i) const { return i < weights.size() ? weights[i] : kNoWeight; }
  template <class Attrs>
  const Attrs& attrs() const {
    return std::get<Attrs>(step_attrs);
  }

  bool in_range(const char* what, int64_t value, int64_t low, int64_t high) {
    return require(low <= value && value <= high, "{} is {}, expected {} to {}", what, value, low,
                   high);
  }
  // The operand has this type and width, and one row per token (or rows of the kind `rows`).
  void shape(std::string_view what, const OpOperand& operand, ValueType type, int64_t width,
             RowKind rows = RowKind::Token) {
    require(operand.type == type, "{} has elements of type {}, expected {}", what,
            type_name(operand.type), type_name(type));
    require(operand.rows == rows, "{} has rows of kind {}, expected {}", what,
            row_kind_name(operand.rows), row_kind_name(rows));
    require(operand.width == width, "{} is {} wide, expected {}", what, operand.width, width);
  }
  // A whole value of `rows_per_row` rows of `width` elements for each row of the step.
  void rows_of(const char* what, const OpOperand& operand, ValueType type, int64_t rows_per_row,
               int64_t width, RowKind rows = RowKind::Token) {
    shape(what, operand, type, rows_per_row * width, rows);
    require(operand.whole() && operand.rows_per_row == rows_per_row,
            "{} is {} rows of {}, expected {} of {}", what, operand.rows_per_row,
            operand.value_width, rows_per_row, width);
  }
  // The same of int8 or BF16 elements.
  void product_input(const char* what, const OpOperand& operand, int64_t rows_per_row,
                     int64_t width, RowKind rows = RowKind::Token) {
    const bool bf16 = operand.type == ValueType::BF16;
    rows_of(what, operand, bf16 ? ValueType::BF16 : ValueType::Q8, rows_per_row, width, rows);
  }
  void vector(const char* what, const OpWeight& weight, int64_t elems) {
    const int64_t have = weight.rows * weight.cols * weight.matrices;
    require(have == elems, "{} has {} elements, expected {}", what, have, elems);
    // A part of a vector may be made of several runs; its rows are then pieces of it.
    require(weight.matrices == 1 && (weight.rows == 1 || weight.dtype == DType::F32),
            "{} is {}, expected {}", what, shape_text(weight.cols, weight.rows, weight.matrices),
            shape_text(elems, 1));
  }
  void matrices(const char* what, const OpWeight& weight, int64_t count, int64_t rows,
                int64_t cols) {
    require(weight.matrices == count && weight.rows == rows && weight.cols == cols,
            "{} is {}, expected {}", what, shape_text(weight.cols, weight.rows, weight.matrices),
            shape_text(cols, rows, count));
  }
  bool has_slot(const char* what, int64_t slot) {
    return in_range(what, slot, 0, static_cast<int64_t>(flow.kv_slots.size()) - 1);
  }
  void reads_slot(int32_t slot) {
    require(flow.slot_stored[slot], "slot {} is read before it is stored", slot);
  }
  void stores_slot(int32_t slot) {
    require(!flow.slot_stored[slot], "slot {} is stored twice", slot);
    flow.slot_stored[slot] = true;
  }
  // The step that wrote a value of expert numbers; null (and an error) unless the value is
  // output `output` of an `op` step.
  const Producer* written_by(const char* what, const OpOperand& operand, StepOp op,
                             int64_t output) {
    const Producer& producer = flow.producer[operand.value];
    const bool good = producer.step >= 0 && producer.output == output && producer.op == op;
    require(good, "{} does not come from a {} step", what, info(op).name);
    return good ? &producer : nullptr;
  }

 private:
  static inline const OpOperand kNoOperand;
  static inline const OpWeight kNoWeight;
};

}  // namespace ktx

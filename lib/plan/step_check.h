// A step record under check: its operands, weights and attributes as they are said to be, and
// the first thing that is wrong with it.
//
//   void check_add(StepCheck& s) {
//     const Operand a = s.in(0);
//     s.shape("b", s.in(1), ValueType::F32, a.width, a.rows());   // "b is 64 wide, expected 128"
//   }
//
// Safe for untrusted plans where the step's ranges have been checked (check_step_records.cc).
#pragma once

#include <fmt/format.h>

#include <cmath>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "lib/formats/shape_text.h"
#include "lib/formats/step_ops.h"
#include "lib/plan/plan_reader.h"

namespace ktx::plan {

// Who wrote a value last, for values of expert numbers.
struct Producer {
  uint32_t step = kNone;
  uint32_t output = 0;
};

// What holds between steps.
struct Flow {
  std::vector<uint32_t> owner;     // per buffer: the value in it, kNone at first
  std::vector<Producer> producer;  // per value
  std::vector<bool> slot_stored;   // per KV slot
  std::vector<uint32_t> device;    // per buffer: of the steps that write it, kNone at first
};

// One operand: elements [offset, offset + width) of each row of a value.
struct Operand {
  uint32_t id = kNone;  // value
  const ValueRecord* value = nullptr;
  int64_t offset = 0;
  int64_t width = 0;
  bool present() const { return value != nullptr; }
  ValueType type() const { return static_cast<ValueType>(value->type); }
  RowKind rows() const { return static_cast<RowKind>(value->rows); }
  bool whole() const { return offset == 0 && width == value->width * value->rows_per_row; }
  bool overlaps(const Operand& other) const {
    return id == other.id && offset < other.offset + other.width && other.offset < offset + width;
  }
};

// A step under check, with the first thing that is wrong with it.
class StepCheck {
 public:
  StepCheck(const PlanView& plan, uint32_t index, Flow& flow)
      : plan(plan), index(index), step(plan.steps[index]), flow(flow) {}

  const PlanView& plan;
  const uint32_t index;
  const StepRecord& step;
  Flow& flow;
  std::string error;

  bool ok() const { return error.empty(); }

  template <class... Args>
  bool require(bool condition, fmt::format_string<Args...> format, Args&&... args) {
    if (!condition && error.empty()) error = fmt::format(format, std::forward<Args>(args)...);
    return condition;
  }

  Operand in(uint32_t i) const { return operand(step.first_input, step.input_count, i); }
  Operand out(uint32_t i) const { return operand(step.first_output, step.output_count, i); }
  // Null when absent.
  const BlobRecord* weight(uint32_t i) const {
    if (i >= step.weight_count) return nullptr;
    const uint32_t blob = plan.weight_uses[step.first_weight + i];
    return blob == kNone ? nullptr : &plan.blobs[blob];
  }
  template <class Attrs>
  const Attrs& attrs() const {
    return plan.attrs_of<Attrs>(step);
  }

  bool in_range(const char* what, int64_t value, int64_t low, int64_t high) {
    return require(low <= value && value <= high, "{} is {}, expected {} to {}", what, value, low,
                   high);
  }
  bool finite(const char* what, float value) {
    return require(std::isfinite(value), "{} is {}", what, value);
  }
  // Of this type and width, one row per token (or, where any is true, per output).
  void shape(const char* what, const Operand& operand, ValueType type, int64_t width,
             RowKind rows = RowKind::Token) {
    require(operand.type() == type, "{} has elements of type {}, expected {}", what,
            operand.value->type, static_cast<int>(type));
    require(operand.rows() == rows, "{} has rows of kind {}, expected {}", what,
            operand.value->rows, static_cast<int>(rows));
    require(operand.width == width, "{} is {} wide, expected {}", what, operand.width, width);
  }
  // Int8 or BF16 rows, `rows_per_row` of `width` elements for each row of the step.
  void product_input(const char* what, const Operand& operand, int64_t rows_per_row, int64_t width,
                     RowKind rows = RowKind::Token) {
    const bool bf16 = operand.type() == ValueType::BF16;
    shape(what, operand, bf16 ? ValueType::BF16 : ValueType::Q8, rows_per_row * width, rows);
    require(operand.whole() && operand.value->rows_per_row == rows_per_row,
            "{} is {} rows of {}, expected {} of {}", what, operand.value->rows_per_row,
            operand.value->width, rows_per_row, width);
  }
  void vector(const char* what, const BlobRecord& blob, int64_t elems) {
    const int64_t have = blob.rows * blob.cols * blob.matrices;
    require(have == elems, "{} has {} elements, expected {}", what, have, elems);
  }
  void matrices(const char* what, const BlobRecord& blob, int64_t count, int64_t rows,
                int64_t cols) {
    require(blob.matrices == count && blob.rows == rows && blob.cols == cols,
            "{} is {}, expected {}", what, shape_text(blob.cols, blob.rows, blob.matrices),
            shape_text(cols, rows, count));
  }
  // Whether y is x: the same elements of the same value.
  static bool in_place(const Operand& x, const Operand& y) {
    return x.id == y.id && x.offset == y.offset && x.width == y.width;
  }
  // The attributes of the step that wrote a value of expert numbers; null (and an
  // error) unless that is output `output` of an `op` step.
  template <class Attrs>
  const Attrs* written_by(const char* what, const Operand& operand, StepOp op, uint32_t output,
                          uint32_t* step_index = nullptr) {
    const Producer& producer = flow.producer[operand.id];
    const bool good = producer.step != kNone && producer.output == output &&
                      plan.steps[producer.step].op == static_cast<uint32_t>(op);
    if (!require(good, "{} does not come from a {} step", what, ktx::info(op).name)) return nullptr;
    if (step_index) *step_index = producer.step;
    return &plan.attrs_of<Attrs>(plan.steps[producer.step]);
  }

 private:
  Operand operand(uint32_t first, uint32_t count, uint32_t i) const {
    if (i >= count) return {};
    const OperandRecord& record = plan.operands[first + i];
    if (record.value == kNone) return {};
    return {record.value, &plan.values[record.value], record.offset, record.width};
  }
};

}  // namespace ktx::plan

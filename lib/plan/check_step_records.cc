#include "lib/plan/check_step_records.h"

#include <fmt/format.h>

#include <cmath>
#include <vector>

#include "lib/formats/dtype.h"
#include "lib/formats/step_attrs.h"
#include "lib/formats/step_ops.h"
#include "lib/plan/verify_records.h"
#include "lib/support/strings.h"

namespace ktx::plan {
namespace {

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
  // Int8 rows, `rows_per_row` of `width` elements for each row of the step.
  void int8(const char* what, const Operand& operand, int64_t rows_per_row, int64_t width,
            RowKind rows = RowKind::Token) {
    shape(what, operand, ValueType::Q8, rows_per_row * width, rows);
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
            "{} is {} matrices of {}x{}, expected {} of {}x{}", what, blob.matrices, blob.rows,
            blob.cols, count, rows, cols);
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

// The rules, one function per op. Operand counts, and that required ones are
// there, have been checked.

void check_embed(StepCheck& s) {
  const BlobRecord& table = *s.weight(0);
  s.shape("y", s.out(0), ValueType::F32, table.cols);
  s.require(table.matrices == 1 && table.rows >= s.plan.facts.vocab_size,
            "table has {} rows for {} tokens", table.rows * table.matrices,
            s.plan.facts.vocab_size);
}

void check_rms_norm(StepCheck& s) {
  const auto& a = s.attrs<RmsNormAttrs>();
  const Operand x = s.in(0);
  if (!s.in_range("groups", a.groups, 1, kMaxHeads)) return;
  s.require(std::isfinite(a.eps) && a.eps >= 0, "eps is {}", a.eps);
  s.require(x.type() == ValueType::F32, "x is not F32");
  s.shape("y", s.out(0), ValueType::F32, x.width, x.rows());
  if (!s.require(x.width % a.groups == 0, "{} groups in {} elements", a.groups, x.width)) return;
  s.vector("weight", *s.weight(0), x.width / a.groups);
}

void check_quantize(StepCheck& s) {
  const auto& a = s.attrs<QuantizeAttrs>();
  const Operand x = s.in(0);
  const Operand xq = s.out(0);
  if (!s.in_range("rows_per_token", a.rows_per_token, 1, kMaxHeads)) return;
  if (!s.in_range("stride", a.stride, 0, kMaxDim)) return;
  s.require(x.type() == ValueType::F32, "x is not F32");
  s.int8("xq", xq, a.rows_per_token, xq.value->width, x.rows());
  const int64_t end = int64_t{a.rows_per_token - 1} * a.stride + xq.value->width;
  s.require(end <= x.width, "{} rows of {}, {} apart, of {} elements", a.rows_per_token,
            xq.value->width, a.stride, x.width);
}

void check_matmul(StepCheck& s) {
  const Operand x = s.in(0);
  const Operand y = s.out(0);
  const BlobRecord& w = *s.weight(0);
  s.in_range("accumulate", s.attrs<MatmulAttrs>().accumulate, 0, 1);
  s.shape("x", x, ValueType::F32, w.cols, x.rows());
  if (s.in(1).present()) s.int8("xq", s.in(1), 1, w.cols, x.rows());
  s.shape("y", y, ValueType::F32, w.rows * w.matrices, x.rows());
  if (s.weight(1)) s.vector("bias", *s.weight(1), y.width);
}

void check_matmul_heads(StepCheck& s) {
  const auto& a = s.attrs<MatmulHeadsAttrs>();
  const Operand x = s.in(0);
  const Operand y = s.out(0);
  const BlobRecord& w = *s.weight(0);
  if (!s.in_range("heads", a.heads, 1, kMaxHeads) ||
      !s.in_range("transposed", a.transposed, 0, 1) ||
      !s.in_range("row_begin", a.row_begin, 0, w.rows) ||
      !s.in_range("row_count", a.row_count, 1, w.rows - a.row_begin)) {
    return;
  }
  const int64_t k = a.transposed ? a.row_count : w.cols;
  const int64_t n = a.transposed ? w.cols : a.row_count;
  if (!s.in_range("x_stride", a.x_stride, k, kMaxDim)) return;
  if (!s.in_range("y_stride", a.y_stride, n, kMaxDim)) return;
  s.matrices("w", w, a.heads, w.rows, w.cols);
  s.shape("x", x, ValueType::F32, x.width);
  s.shape("y", y, ValueType::F32, y.width);
  s.require((a.heads - 1) * int64_t{a.x_stride} + k <= x.width,
            "{} heads of {}, {} apart, of {} elements of x", a.heads, k, a.x_stride, x.width);
  s.require((a.heads - 1) * int64_t{a.y_stride} + n <= y.width,
            "{} heads of {}, {} apart, of {} elements of y", a.heads, n, a.y_stride, y.width);
  if (s.in(1).present()) s.int8("xq", s.in(1), a.heads, k);
}

void check_rope(StepCheck& s) {
  const auto& a = s.attrs<RopeAttrs>();
  const Operand x = s.in(0);
  const Operand y = s.out(0);
  if (!s.in_range("heads", a.heads, 1, kMaxHeads) ||
      !s.in_range("head_dim", a.head_dim, 1, kMaxDim) ||
      !s.in_range("y_head_dim", a.y_head_dim, 1, kMaxDim) ||
      !s.in_range("rotary_dim", a.rotary_dim, 2, std::min(a.head_dim, a.y_head_dim)) ||
      !s.in_range("rotary_begin", a.rotary_begin, 0, a.head_dim - a.rotary_dim) ||
      !s.in_range("y_begin", a.y_begin, 0, a.y_head_dim - a.rotary_dim)) {
    return;
  }
  s.in_range("interleaved", a.interleaved, 0, 1);
  s.finite("mscale", a.mscale);
  s.require(a.rotary_dim % 2 == 0, "rotary_dim is {}, expected an even number", a.rotary_dim);
  s.shape("x", x, ValueType::F32, x.width);
  s.shape("y", y, ValueType::F32, y.width);
  const int64_t x_end = (a.heads - 1) * int64_t{a.head_dim} + a.rotary_begin + a.rotary_dim;
  const int64_t y_end = (a.heads - 1) * int64_t{a.y_head_dim} + a.y_begin + a.rotary_dim;
  s.require(x_end <= x.width, "{} heads of {} in {} elements of x", a.heads, a.head_dim, x.width);
  s.require(y_end <= y.width, "{} heads of {} in {} elements of y", a.heads, a.y_head_dim, y.width);
  s.vector("inv_freq", *s.weight(0), a.rotary_dim / 2);
  s.require(s.weight(0)->dtype == static_cast<uint16_t>(DType::F32), "inv_freq is not F32");
  s.require(
      !StepCheck::in_place(x, y) || (a.y_head_dim == a.head_dim && a.y_begin == a.rotary_begin),
      "in place with another place of the rotary part");
}

void check_kv_store(StepCheck& s) {
  const auto& a = s.attrs<KvStoreAttrs>();
  if (!s.in_range("slot", a.slot, 0, static_cast<int64_t>(s.plan.kv_slots.size()) - 1)) return;
  const KvSlotRecord& slot = s.plan.kv_slots[a.slot];
  s.shape("key", s.in(0), ValueType::F32, int64_t{slot.kv_heads} * slot.key_dim);
  if (s.require(s.in(1).present() == (slot.value_dim > 0), "value {} for a slot with values of {}",
                s.in(1).present() ? "given" : "missing", slot.value_dim) &&
      slot.value_dim > 0) {
    s.shape("value", s.in(1), ValueType::F32, int64_t{slot.kv_heads} * slot.value_dim);
  }
  s.require(!s.flow.slot_stored[a.slot], "slot {} is stored twice", a.slot);
  s.flow.slot_stored[a.slot] = true;
}

void check_attention(StepCheck& s) {
  const auto& a = s.attrs<AttentionAttrs>();
  if (!s.in_range("slot", a.slot, 0, static_cast<int64_t>(s.plan.kv_slots.size()) - 1) ||
      !s.in_range("heads", a.heads, 1, kMaxHeads) ||
      !s.in_range("value_in_key", a.value_in_key, 0, 1)) {
    return;
  }
  const KvSlotRecord& slot = s.plan.kv_slots[a.slot];
  s.finite("scale", a.scale);
  s.require(a.kv_heads == slot.kv_heads && a.key_dim == slot.key_dim,
            "{} heads of {} over a slot with {} of {}", a.kv_heads, a.key_dim, slot.kv_heads,
            slot.key_dim);
  s.require(a.heads % slot.kv_heads == 0, "{} heads share {} key heads", a.heads, slot.kv_heads);
  if (a.value_in_key) {
    s.require(slot.value_dim == 0, "values in the key over a slot with values of {}",
              slot.value_dim);
    s.in_range("value_dim", a.value_dim, 1, slot.key_dim);
  } else {
    s.require(slot.value_dim > 0 && a.value_dim == slot.value_dim,
              "values of {} over a slot with values of {}", a.value_dim, slot.value_dim);
  }
  s.shape("q", s.in(0), ValueType::F32, int64_t{a.heads} * a.key_dim);
  s.shape("y", s.out(0), ValueType::F32, int64_t{a.heads} * a.value_dim);
  s.require(s.flow.slot_stored[a.slot], "slot {} is read before it is stored", a.slot);
}

void check_swiglu(StepCheck& s) {
  const Operand gate = s.in(0);
  s.shape("gate", gate, ValueType::F32, gate.width, gate.rows());
  s.shape("up", s.in(1), ValueType::F32, gate.width, gate.rows());
  s.shape("y", s.out(0), ValueType::F32, gate.width, gate.rows());
}

void check_router(StepCheck& s) {
  const auto& a = s.attrs<RouterAttrs>();
  if (!s.in_range("experts", a.experts, 1, kMaxHeads) ||
      !s.in_range("top_k", a.top_k, 1, a.experts) ||
      !s.in_range("groups", a.groups, 1, a.experts) ||
      !s.in_range("groups_used", a.groups_used, 1, a.groups)) {
    return;
  }
  s.in_range("scoring", a.scoring, 0, 1);
  s.in_range("normalize", a.normalize, 0, 1);
  s.in_range("group_score", a.group_score, 0, 1);
  s.finite("scale", a.scale);
  const int32_t group = a.experts / a.groups;
  s.require(a.experts % a.groups == 0, "{} experts in {} groups", a.experts, a.groups);
  s.require(int64_t{group} * a.groups_used >= a.top_k, "{} experts of {} groups of {}", a.top_k,
            a.groups_used, group);
  s.shape("logits", s.in(0), ValueType::F32, a.experts);
  s.shape("ids", s.out(0), ValueType::I32, a.top_k);
  s.shape("weights", s.out(1), ValueType::F32, a.top_k);
  s.require(s.out(0).whole(), "ids are a part of a value");
  if (s.weight(0)) s.vector("bias", *s.weight(0), a.experts);
}

void check_group_experts(StepCheck& s) {
  const auto& a = s.attrs<GroupExpertsAttrs>();
  const auto* router = s.written_by<RouterAttrs>("ids", s.in(0), StepOp::Router, 0);
  if (!router) return;
  s.require(router->experts == a.experts && router->top_k == a.top_k,
            "{} of {} experts, but the router gives {} of {}", a.top_k, a.experts, router->top_k,
            router->experts);
  s.shape("ids", s.in(0), ValueType::I32, a.top_k);
  s.shape("order", s.out(0), ValueType::I32, a.top_k);
  s.shape("offsets", s.out(1), ValueType::I32, int64_t{a.experts} + 1, RowKind::Single);
  s.require(s.in(0).whole() && s.out(0).whole() && s.out(1).whole(),
            "ids, order or offsets are a part of a value");
}

// The operands that experts_gate_up and experts_down share.
bool check_expert_order(StepCheck& s, const ExpertsAttrs& a) {
  uint32_t order_step = 0;
  uint32_t offsets_step = 0;
  const auto* order =
      s.written_by<GroupExpertsAttrs>("order", s.in(2), StepOp::GroupExperts, 0, &order_step);
  const auto* offsets =
      s.written_by<GroupExpertsAttrs>("offsets", s.in(3), StepOp::GroupExperts, 1, &offsets_step);
  if (!order || !offsets) return false;
  if (!s.require(order_step == offsets_step, "order and offsets come from different steps") ||
      !s.require(order->experts == a.experts && order->top_k == a.top_k,
                 "{} of {} experts, grouped as {} of {}", a.top_k, a.experts, order->top_k,
                 order->experts)) {
    return false;
  }
  s.shape("order", s.in(2), ValueType::I32, a.top_k);
  s.shape("offsets", s.in(3), ValueType::I32, int64_t{a.experts} + 1, RowKind::Single);
  return s.ok();
}

void check_experts_gate_up(StepCheck& s) {
  const auto& a = s.attrs<ExpertsAttrs>();
  if (!check_expert_order(s, a)) return;
  const Operand x = s.in(0);
  const BlobRecord& gate = *s.weight(0);
  s.require(a.accumulate == 0, "accumulate is {}, expected 0", a.accumulate);
  s.matrices("gate", gate, a.experts, gate.rows, x.width);
  s.matrices("up", *s.weight(1), a.experts, gate.rows, x.width);
  s.shape("x", x, ValueType::F32, gate.cols);
  if (s.in(1).present()) s.int8("xq", s.in(1), 1, gate.cols);
  s.shape("h", s.out(0), ValueType::F32, a.top_k * gate.rows);
}

void check_experts_down(StepCheck& s) {
  const auto& a = s.attrs<ExpertsAttrs>();
  if (!check_expert_order(s, a)) return;
  const BlobRecord& down = *s.weight(0);
  s.in_range("accumulate", a.accumulate, 0, 1);
  s.matrices("down", down, a.experts, down.rows, down.cols);
  s.shape("h", s.in(0), ValueType::F32, a.top_k * down.cols);
  if (s.in(1).present()) s.int8("hq", s.in(1), a.top_k, down.cols);
  s.shape("weights", s.in(4), ValueType::F32, a.top_k);
  s.shape("y", s.out(0), ValueType::F32, down.rows);
}

void check_add(StepCheck& s) {
  const Operand a = s.in(0);
  s.shape("a", a, ValueType::F32, a.width, a.rows());
  s.shape("b", s.in(1), ValueType::F32, a.width, a.rows());
  s.shape("y", s.out(0), ValueType::F32, a.width, a.rows());
}

void check_sigmoid_scale(StepCheck& s) {
  const Operand x = s.in(0);
  s.shape("x", x, ValueType::F32, x.width, x.rows());
  s.shape("gate", s.in(1), ValueType::F32, 1, x.rows());
  s.shape("y", s.out(0), ValueType::F32, x.width, x.rows());
}

void check_gather_rows(StepCheck& s) {
  const Operand x = s.in(0);
  s.shape("x", x, ValueType::F32, x.width);
  s.shape("y", s.out(0), ValueType::F32, x.width, RowKind::Output);
}

void check_transfer(StepCheck& s) {
  const Operand x = s.in(0);
  const Operand y = s.out(0);
  s.require(x.whole() && y.whole(), "only whole values are transferred");
  s.shape("y", y, x.type(), x.width, x.rows());
  s.require(x.value->rows_per_row == y.value->rows_per_row && x.value->width == y.value->width,
            "y has another shape than x");
}

enum class InPlace { No, FirstInput, AnyInput };

struct OpRule {
  StepOp op;
  void (*check)(StepCheck&);
  InPlace in_place;  // may y be the first input, or any?
};

constexpr OpRule kRules[] = {
    {StepOp::Embed, check_embed, InPlace::No},
    {StepOp::RmsNorm, check_rms_norm, InPlace::FirstInput},
    {StepOp::Quantize, check_quantize, InPlace::No},
    {StepOp::Matmul, check_matmul, InPlace::No},
    {StepOp::MatmulHeads, check_matmul_heads, InPlace::No},
    {StepOp::Rope, check_rope, InPlace::FirstInput},
    {StepOp::KvStore, check_kv_store, InPlace::No},
    {StepOp::Attention, check_attention, InPlace::No},
    {StepOp::Swiglu, check_swiglu, InPlace::AnyInput},
    {StepOp::Router, check_router, InPlace::No},
    {StepOp::GroupExperts, check_group_experts, InPlace::No},
    {StepOp::ExpertsGateUp, check_experts_gate_up, InPlace::No},
    {StepOp::ExpertsDown, check_experts_down, InPlace::No},
    {StepOp::Add, check_add, InPlace::FirstInput},
    {StepOp::SigmoidScale, check_sigmoid_scale, InPlace::FirstInput},
    {StepOp::GatherRows, check_gather_rows, InPlace::No},
    {StepOp::Transfer, check_transfer, InPlace::No},
};

constexpr bool rules_match_ops() {
  uint32_t i = 0;
  bool match = true;
#define KTX_STEP_OP(id, name, attrs, in, out, weights, sentence)        \
  match = match && i < std::size(kRules) && kRules[i].op == StepOp::id; \
  ++i;
#include "lib/formats/step_ops.def"
#undef KTX_STEP_OP
  return match && i == std::size(kRules);
}
static_assert(rules_match_ops(), "one rule per row of step_ops.def, in its order");

// Whether operand i of a list such as "x xq? order" may be absent.
bool optional_operand(std::string_view list, uint32_t i) {
  const auto names = split(list, ' ');
  return i < names.size() && names[i].ends_with('?');
}

// Ranges of the step's own fields, and that required operands are there.
void check_fields(StepCheck& s) {
  const StepRecord& step = s.step;
  const PlanView& plan = s.plan;
  const StepOpInfo& op = info(static_cast<StepOp>(step.op));
  const auto is_string = [&](uint32_t i) { return i < plan.string_entries.size(); };
  const auto in_table = [&](const char* what, uint64_t first, uint64_t count, uint64_t size) {
    return s.require(first <= size && count <= size - first, "{} {} to {} of {}", what, first,
                     first + count, size);
  };
  s.require(is_string(step.module) && is_string(step.device), "module {} or device {} is no string",
            step.module, step.device);
  s.in_range("layer", step.layer, -1, plan.facts.layers - 1);
  for (const auto& row : step.kernel) {
    for (uint32_t kernel : row) {
      s.require(kernel == kNone || is_string(kernel), "kernel {} is no string", kernel);
    }
  }
  if (!in_table("inputs", step.first_input, step.input_count, plan.operands.size()) ||
      !in_table("outputs", step.first_output, step.output_count, plan.operands.size()) ||
      !in_table("weights", step.first_weight, step.weight_count, plan.weight_uses.size()) ||
      !in_table("attributes", step.attrs_offset, step.attrs_size, plan.attrs.size())) {
    return;
  }
  s.require(step.attrs_size == op.attrs_size && step.attrs_offset % 4 == 0,
            "{} bytes of attributes at {}, expected {}", step.attrs_size, step.attrs_offset,
            op.attrs_size);
  const auto count = [&](const char* what, uint32_t have, std::string_view list) {
    const auto most = static_cast<uint32_t>(operand_count(list));
    uint32_t least = most;  // absent ones at the end may be left out
    while (least > 0 && optional_operand(list, least - 1)) --least;
    s.require(have >= least && have <= most, "{} {}, expected {} ({})", have, what, most, list);
  };
  count("inputs", step.input_count, op.inputs);
  count("outputs", step.output_count, op.outputs);
  count("weights", step.weight_count, op.weights);
  if (!s.ok()) return;

  for (uint32_t i = 0; i < step.input_count; ++i) {
    s.require(s.in(i).present() || optional_operand(op.inputs, i), "input {} ({}) is missing", i,
              op.inputs);
  }
  for (uint32_t i = 0; i < step.output_count; ++i) {
    s.require(s.out(i).present(), "output {} ({}) is missing", i, op.outputs);
  }
  for (uint32_t i = 0; i < step.weight_count; ++i) {
    const uint32_t blob = plan.weight_uses[step.first_weight + i];
    if (blob == kNone) {
      s.require(optional_operand(op.weights, i), "weight {} ({}) is missing", i, op.weights);
      continue;
    }
    if (!s.require(blob < plan.blobs.size(), "weight {} of {}", blob, plan.blobs.size())) return;
    s.require(plan.blobs[blob].dtype != static_cast<uint16_t>(DType::I32),
              "weight {} has integer elements", i);
    for (const SegmentRecord& segment : plan.segments) {
      if (blob - segment.first_blob >= segment.blob_count) continue;
      s.require(segment.kind == static_cast<uint32_t>(SegmentKind::Weights),
                "weight {} is only carried for export", i);
      break;
    }
  }
}

// Device names are strings, each once: equal numbers are equal devices.
bool same_device(const PlanView& plan, uint32_t a, uint32_t b) {
  return a == b || plan.string(a) == plan.string(b);
}

int32_t kv_slot_of(const StepCheck& s) {
  switch (static_cast<StepOp>(s.step.op)) {
    case StepOp::KvStore:
      return s.attrs<KvStoreAttrs>().slot;
    case StepOp::Attention:
      return s.attrs<AttentionAttrs>().slot;
    default:
      return -1;
  }
}

// A step touches the memory of its own device only; a transfer reads another's.
void check_device(StepCheck& s) {
  const PlanView& plan = s.plan;
  const uint32_t own = s.step.device;
  const bool transfer = s.step.op == static_cast<uint32_t>(StepOp::Transfer);
  for (uint32_t i = 0; i < s.step.input_count; ++i) {
    const Operand x = s.in(i);
    if (!x.present()) continue;
    const uint32_t from = s.flow.device[x.value->buffer];
    if (from == kNone) continue;  // never written, which check_flow reports
    s.require(same_device(plan, from, own) != transfer, "it is on {} and input {} on {}",
              printable(plan.string(own)), i, printable(plan.string(from)));
  }
  for (uint32_t o = 0; o < s.step.output_count; ++o) {
    uint32_t& to = s.flow.device[s.out(o).value->buffer];
    if (to == kNone) to = own;
    s.require(same_device(plan, to, own), "it is on {} and output {} on {}",
              printable(plan.string(own)), o, printable(plan.string(to)));
  }
  for (uint32_t i = 0; i < s.step.weight_count; ++i) {
    const uint32_t blob = plan.weight_uses[s.step.first_weight + i];
    if (blob == kNone) continue;
    for (const SegmentRecord& segment : plan.segments) {
      if (blob - segment.first_blob >= segment.blob_count) continue;
      s.require(same_device(plan, segment.device, own), "it is on {} and weight {} on {}",
                printable(plan.string(own)), i, printable(plan.string(segment.device)));
      break;
    }
  }
  const int32_t slot = kv_slot_of(s);
  if (slot >= 0) {
    s.require(same_device(plan, plan.kv_slots[slot].device, own), "it is on {} and slot {} on {}",
              printable(plan.string(own)), slot,
              printable(plan.string(plan.kv_slots[slot].device)));
  }
}

bool accumulates(const StepCheck& s) {
  switch (static_cast<StepOp>(s.step.op)) {
    case StepOp::Matmul:
      return s.attrs<MatmulAttrs>().accumulate != 0;
    case StepOp::ExpertsDown:
      return s.attrs<ExpertsAttrs>().accumulate != 0;
    default:
      return false;
  }
}

// Reads only what is there, and writes beside what it reads.
void check_flow(StepCheck& s, InPlace in_place) {
  Flow& flow = s.flow;
  const auto must_be_there = [&](const char* what, uint32_t i, const Operand& operand) {
    s.require(flow.owner[operand.value->buffer] == operand.id,
              "{} {} reads value '{}' before it is written, or after its memory was reused", what,
              i, printable(s.plan.string(operand.value->name)));
  };
  for (uint32_t i = 0; i < s.step.input_count; ++i) {
    if (s.in(i).present()) must_be_there("input", i, s.in(i));
  }
  for (uint32_t o = 0; o < s.step.output_count; ++o) {
    const Operand y = s.out(o);
    if (accumulates(s)) must_be_there("output", o, y);
    for (uint32_t i = 0; i < s.step.input_count; ++i) {
      const Operand x = s.in(i);
      if (!x.present() || x.value->buffer != y.value->buffer) continue;
      const bool beside = x.id == y.id && !x.overlaps(y);
      const bool allowed =
          in_place == InPlace::AnyInput || (in_place == InPlace::FirstInput && i == 0);
      const bool same = allowed && StepCheck::in_place(x, y);
      s.require(beside || same, "output {} overwrites input {}", o, i);
    }
    for (uint32_t other = 0; other < o; ++other) {
      const Operand z = s.out(other);
      s.require(z.value->buffer != y.value->buffer || (z.id == y.id && !z.overlaps(y)),
                "outputs {} and {} share memory", other, o);
    }
  }
  for (uint32_t o = 0; o < s.step.output_count; ++o) {
    const Operand y = s.out(o);
    flow.owner[y.value->buffer] = y.id;
    flow.producer[y.id] = {s.index, o};
    // A copy counts as written by who wrote the original.
    if (s.step.op == static_cast<uint32_t>(StepOp::Transfer)) {
      flow.producer[y.id] = flow.producer[s.in(0).id];
    }
  }
}

}  // namespace

Status verify_steps(const PlanView& plan) {
  Flow flow;
  flow.owner.assign(plan.buffers.size(), kNone);
  flow.producer.resize(plan.values.size());
  flow.slot_stored.assign(plan.kv_slots.size(), false);
  flow.device.assign(plan.buffers.size(), kNone);
  if (plan.steps.empty()) return Error{"the plan has no steps"};
  for (uint32_t i = 0; i < plan.steps.size(); ++i) {
    const StepRecord& step = plan.steps[i];
    if (step.op >= std::size(kRules)) {
      return Error{fmt::format("step {}: op {} is not known here; the plan needs a newer ktx-run",
                               i, step.op)};
    }
    StepCheck s(plan, i, flow);
    const OpRule& rule = kRules[step.op];
    check_fields(s);
    if (s.ok()) rule.check(s);
    if (s.ok()) check_device(s);
    if (s.ok()) check_flow(s, rule.in_place);
    if (!s.ok()) {
      const std::string_view module =
          step.module < plan.string_entries.size() ? plan.string(step.module) : "?";
      return Error{
          fmt::format("step {} ({}, {}): {}", i, info(rule.op).name, printable(module), s.error)};
    }
  }

  const PlanFacts& facts = plan.facts;
  if (facts.logits_value >= plan.values.size()) {
    return Error{fmt::format("logits are value {} of {}", facts.logits_value, plan.values.size())};
  }
  const ValueRecord& logits = plan.values[facts.logits_value];
  if (logits.type != static_cast<uint8_t>(ValueType::F32) ||
      logits.rows != static_cast<uint8_t>(RowKind::Output) || logits.rows_per_row != 1 ||
      logits.width != facts.vocab_size || flow.owner[logits.buffer] != facts.logits_value) {
    return Error{fmt::format("value '{}' is not the logits of {} tokens that the last step leaves",
                             printable(plan.string(logits.name)), facts.vocab_size)};
  }
  return {};
}

}  // namespace ktx::plan

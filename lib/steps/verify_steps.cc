// Checks a step graph: ids, operand counts, definition before use, and for each op
// that its operands, attributes and weights have the shapes that step_ops.def
// states. Runs after every pass that touches the graph.
#include <fmt/format.h>

#include <set>

#include "lib/steps/step_graph.h"
#include "lib/formats/shape_text.h"
#include "lib/steps/step_text.h"

namespace ktx::steps {
namespace {

class Verifier {
 public:
  Verifier(const StepGraph& graph, DiagSink& sink) : graph_(graph), sink_(sink) {}

  void run() {
    check_values();
    check_blobs();
    std::vector<bool> defined(graph_.values.size(), false);
    for (step_number_ = 0; step_number_ < graph_.steps.size(); ++step_number_) {
      check_step(graph_.steps[step_number_], defined);
    }
  }

 private:
  void fail(const std::string& what) {
    const bool in_step = step_number_ < graph_.steps.size();
    sink_.error({}, "",
                in_step ? fmt::format("step {} ({} of '{}'): {}", step_number_,
                                      info(graph_.steps[step_number_].op).name,
                                      graph_.steps[step_number_].module, what)
                        : what);
  }
  void expect(bool ok, const char* what) {
    if (!ok) fail(what);
  }
  void expect_equal(int64_t found, int64_t expected, const char* what) {
    if (found != expected) fail(fmt::format("{} is {}, expected {}", what, found, expected));
  }

  void check_values() {
    step_number_ = graph_.steps.size();
    std::set<std::string_view> names;
    for (const Value& value : graph_.values) {
      if (!names.insert(value.name).second) fail(fmt::format("two values '{}'", value.name));
      if (value.width <= 0 || value.rows_per_row <= 0 ||
          (is_product_input(value.type) && value.width % 32 != 0)) {
        fail(fmt::format("value '{}' has a bad width {} x {}", value.name, value.rows_per_row,
                         value.width));
      }
      if (value.buffer < kAbsent || value.buffer >= static_cast<int64_t>(graph_.buffers.size())) {
        fail(fmt::format("value '{}' names buffer {}, there are {}", value.name, value.buffer,
                         graph_.buffers.size()));
      }
    }
  }

  void check_blobs() {
    for (const Blob& blob : graph_.blobs) {
      if (blob.rows <= 0 || blob.cols <= 0 || blob.matrices <= 0 ||
          !row_bytes(blob.dtype, blob.cols)) {
        fail(fmt::format("blob '{}' has a bad shape {} of {}", blob.name,
                         shape_text(blob.cols, blob.rows, blob.matrices), name(blob.dtype)));
      }
      if (blob.sources.empty() == blob.constant.empty()) {
        fail(fmt::format("blob '{}' needs either source tensors or a constant", blob.name));
      }
      const auto n_values = static_cast<int64_t>(blob.constant.size());
      if (n_values > 0 && (blob.rows <= 0 || blob.matrices <= 0 || blob.cols <= 0 ||
                           n_values / blob.rows / blob.matrices != blob.cols ||
                           n_values % (blob.rows * blob.matrices) != 0)) {
        fail(fmt::format("blob '{}' has {} constant values, expected {}", blob.name, n_values,
                         shape_text(blob.cols, blob.rows, blob.matrices)));
      }
    }
  }

  bool check_view(const View& view) {
    if (view.value < 0 || view.value >= static_cast<int64_t>(graph_.values.size())) {
      fail(fmt::format("operand names value {}, there are {}", view.value, graph_.values.size()));
      return false;
    }
    const Value& value = graph_.values[view.value];
    const int64_t whole = value.width * value.rows_per_row;
    if (view.offset < 0 || view.width <= 0 || view.offset > whole ||
        view.width > whole - view.offset) {
      fail(fmt::format("operand of {} elements from {} lies outside value '{}' of {}", view.width,
                       view.offset, value.name, whole));
      return false;
    }
    if (is_product_input(value.type) && view.width != whole) {
      fail(fmt::format("{} value '{}' must be taken whole", type_name(value.type), value.name));
      return false;
    }
    return true;
  }

  bool check_operands(const Step& step, std::vector<bool>& defined) {
    const StepOpInfo& op = info(step.op);
    const auto count_ok = [&](size_t count, std::string_view names, const char* what) {
      const bool ok = static_cast<int>(count) == operand_count(names);
      if (!ok)
        fail(fmt::format("{} {}s, expected {} ({})", count, what, operand_count(names), names));
      return ok;
    };
    if (!count_ok(step.inputs.size(), op.inputs, "input") ||
        !count_ok(step.outputs.size(), op.outputs, "output") ||
        !count_ok(step.weights.size(), op.weights, "weight")) {
      return false;
    }
    if (step.attrs.index() != default_attrs(step.op).index()) {
      fail("attributes of another op");
      return false;
    }
    for (const View& view : step.inputs) {
      if (view.value == kAbsent) continue;
      if (!check_view(view)) return false;
      expect(defined[view.value], "reads a value that no earlier step wrote");
    }
    for (const View& view : step.outputs) {
      if (!check_view(view)) return false;
      defined[view.value] = true;
    }
    for (BlobId blob : step.weights) {
      if (blob < kAbsent || blob >= static_cast<int64_t>(graph_.blobs.size())) {
        fail("names a weight that does not exist");
        return false;
      }
    }
    return true;
  }

  const Blob* weight(const Step& step, size_t i) const {
    return step.weights[i] == kAbsent ? nullptr : &graph_.blobs[step.weights[i]];
  }
  void expect_shape(const Blob* blob, int64_t matrices, int64_t rows, int64_t cols) {
    if (!blob) return fail("a weight is missing");
    if (blob->matrices != matrices || blob->rows != rows || blob->cols != cols) {
      fail(fmt::format("weight '{}' is {}, expected {}", blob->name,
                       shape_text(blob->cols, blob->rows, blob->matrices),
                       shape_text(cols, rows, matrices)));
    }
  }

  // One function per attribute struct; ops that share NoAttrs differ by op.
  void shapes(const Step& step, const NoAttrs&) {
    const int64_t out = step.outputs[0].width;
    if (step.op == StepOp::Embed) {
      expect(weight(step, 0) && weight(step, 0)->cols == out, "the table's columns differ from y");
      return;
    }
    expect_equal(out, step.inputs[0].width, "width of y");
    if (step.op == StepOp::Swiglu || step.op == StepOp::Add) {
      expect_equal(step.inputs[1].width, out, "width of the second operand");
    }
    if (step.op == StepOp::Transfer) {
      const Value& x = graph_.values[step.inputs[0].value];
      const Value& y = graph_.values[step.outputs[0].value];
      expect(step.inputs[0] == graph_.whole(step.inputs[0].value) &&
                 step.outputs[0] == graph_.whole(step.outputs[0].value),
             "only whole values are transferred");
      expect(x.type == y.type && x.rows == y.rows && x.rows_per_row == y.rows_per_row,
             "x and y differ in shape");
    }
    if (step.op == StepOp::SigmoidScale) expect_equal(step.inputs[1].width, 1, "width of the gate");
  }
  void shapes(const Step& step, const RmsNormAttrs& a) {
    const int64_t width = step.inputs[0].width;
    expect_equal(step.outputs[0].width, width, "width of y");
    expect(a.groups > 0 && width % a.groups == 0, "groups do not divide the width");
    if (a.groups > 0) expect_shape(weight(step, 0), 1, 1, width / a.groups);
  }
  void shapes(const Step& step, const QuantizeAttrs& a) {
    const Value& xq = graph_.values[step.outputs[0].value];
    expect(is_product_input(xq.type), "xq must be int8 or BF16");
    expect_equal(xq.rows_per_row, a.rows_per_token, "rows of xq");
    expect(a.stride > 0 &&
               (a.rows_per_token - 1) * int64_t{a.stride} + xq.width <= step.inputs[0].width,
           "rows lie outside x");
  }
  void shapes(const Step& step, const MatmulAttrs&) {
    expect_shape(weight(step, 0), 1, step.outputs[0].width, step.inputs[0].width);
    if (weight(step, 1)) expect_shape(weight(step, 1), 1, 1, step.outputs[0].width);
  }
  void shapes(const Step& step, const MatmulHeadsAttrs& a) {
    const Blob* w = weight(step, 0);
    if (!w || a.heads <= 0) return fail("no weight or no heads");
    expect_equal(w->matrices, a.heads, "matrices of the weight");
    expect(a.row_begin >= 0 && a.row_count > 0 && a.row_begin + int64_t{a.row_count} <= w->rows,
           "rows outside the weight");
    const int64_t k = a.transposed ? a.row_count : w->cols;
    const int64_t n = a.transposed ? w->cols : a.row_count;
    expect(a.x_stride >= k || a.heads == 1, "heads overlap in x");
    expect((a.heads - 1) * int64_t{a.x_stride} + k <= step.inputs[0].width, "heads lie outside x");
    expect(a.y_stride >= n || a.heads == 1, "heads overlap in y");
    expect((a.heads - 1) * int64_t{a.y_stride} + n <= step.outputs[0].width, "heads lie outside y");
  }
  void shapes(const Step& step, const RopeAttrs& a) {
    expect(a.heads > 0 && a.rotary_dim > 0 && a.rotary_dim % 2 == 0, "bad rotary dimensions");
    expect(a.rotary_begin >= 0 && a.rotary_begin + int64_t{a.rotary_dim} <= a.head_dim,
           "rotary part outside the head of x");
    expect(a.y_begin >= 0 && a.y_begin + int64_t{a.rotary_dim} <= a.y_head_dim,
           "rotary part outside the head of y");
    expect(a.heads * int64_t{a.head_dim} <= step.inputs[0].width, "heads outside x");
    expect(a.heads * int64_t{a.y_head_dim} <= step.outputs[0].width, "heads outside y");
    expect_shape(weight(step, 0), 1, 1, a.rotary_dim / 2);
  }
  const KvSlot* slot(int32_t number) {
    if (number >= 0 && number < static_cast<int64_t>(graph_.kv_slots.size())) {
      return &graph_.kv_slots[number];
    }
    fail(fmt::format("names KV slot {}, there are {}", number, graph_.kv_slots.size()));
    return nullptr;
  }
  void shapes(const Step& step, const KvStoreAttrs& a) {
    const KvSlot* kv = slot(a.slot);
    if (!kv) return;
    expect_equal(step.inputs[0].width, int64_t{kv->kv_heads} * kv->key_dim, "width of the key");
    expect_equal(step.inputs[1].value == kAbsent ? 0 : step.inputs[1].width,
                 int64_t{kv->kv_heads} * kv->value_dim, "width of the value");
  }
  void shapes(const Step& step, const AttentionAttrs& a) {
    const KvSlot* kv = slot(a.slot);
    if (!kv) return;
    expect(a.heads > 0 && a.kv_heads > 0 && a.heads % a.kv_heads == 0,
           "KV heads do not divide heads");
    expect_equal(a.kv_heads, kv->kv_heads, "KV heads");
    expect_equal(a.key_dim, kv->key_dim, "key_dim");
    expect_equal(kv->value_dim, a.value_in_key ? 0 : a.value_dim, "value_dim of the slot");
    expect(!a.value_in_key || a.value_dim <= a.key_dim, "value is longer than the key it lives in");
    expect_equal(step.inputs[0].width, int64_t{a.heads} * a.key_dim, "width of q");
    expect_equal(step.outputs[0].width, int64_t{a.heads} * a.value_dim, "width of y");
  }
  void shapes(const Step& step, const RouterAttrs& a) {
    expect_equal(step.inputs[0].width, a.experts, "width of the logits");
    expect_equal(step.outputs[0].width, a.top_k, "width of ids");
    expect_equal(step.outputs[1].width, a.top_k, "width of weights");
    expect(a.top_k > 0 && a.top_k <= a.experts, "top_k is not within the experts");
    expect(a.groups > 0 && a.experts % a.groups == 0, "groups do not divide the experts");
    expect(a.groups_used > 0 && a.groups_used <= a.groups, "groups_used is not within the groups");
    if (weight(step, 0)) expect_shape(weight(step, 0), 1, 1, a.experts);
  }
  void shapes(const Step& step, const GroupExpertsAttrs& a) {
    expect_equal(step.inputs[0].width, a.top_k, "width of ids");
    expect_equal(step.outputs[0].width, a.top_k, "width of order");
    expect_equal(step.outputs[1].width, a.experts + int64_t{1}, "width of offsets");
  }
  void shapes(const Step& step, const ExpertsAttrs& a) {
    if (step.op == StepOp::ExpertsGateUp) {
      const Value& h = graph_.values[step.outputs[0].value];
      expect_equal(h.rows_per_row, a.top_k, "rows of h");
      expect_shape(weight(step, 0), a.experts, h.width, step.inputs[0].width);
      expect_shape(weight(step, 1), a.experts, h.width, step.inputs[0].width);
    } else {
      const Value& h = graph_.values[step.inputs[0].value];
      expect_equal(h.rows_per_row, a.top_k, "rows of h");
      expect_shape(weight(step, 0), a.experts, step.outputs[0].width, h.width);
    }
  }

  void check_step(const Step& step, std::vector<bool>& defined) {
    if (!check_operands(step, defined)) return;
    std::visit([&](const auto& attrs) { shapes(step, attrs); }, step.attrs);
  }

  const StepGraph& graph_;
  DiagSink& sink_;
  size_t step_number_ = 0;
};

}  // namespace

void verify(const StepGraph& graph, DiagSink& sink) {
  Verifier(graph, sink).run();
}

}  // namespace ktx::steps

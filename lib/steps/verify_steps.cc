// Checks a step graph: ids, operand counts, definition before use, and the rules of each op
// (op_rules.cc), which the plan's reader checks as well. Runs after every pass that touches the
// graph.
#include <fmt/format.h>

#include <set>

#include "lib/formats/shape_limits.h"
#include "lib/formats/shape_text.h"
#include "lib/ops/op_rules.h"
#include "lib/steps/step_graph.h"

namespace ktx::steps {
namespace {

class Verifier {
 public:
  Verifier(const StepGraph& graph, DiagSink& sink) : graph_(graph), sink_(sink) {}

  // Steps only where values, weights and slots are sound, on which their rules rely.
  void run() {
    step_number_ = graph_.steps.size();
    check_values();
    check_blobs();
    check_slots();
    if (failed_) return;
    flow_.slot_stored.assign(graph_.kv_slots.size(), false);
    flow_.producer.resize(graph_.values.size());
    std::vector<bool> defined(graph_.values.size(), false);
    for (step_number_ = 0; step_number_ < graph_.steps.size(); ++step_number_) {
      check_step(graph_.steps[step_number_], defined);
    }
  }

 private:
  void fail(const std::string& what) {
    failed_ = true;
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
  static bool in_range(int64_t value, int64_t low, int64_t high) {
    return low <= value && value <= high;
  }

  void check_values() {
    std::set<std::string_view> names;
    for (const Value& value : graph_.values) {
      if (!names.insert(value.name).second) fail(fmt::format("two values '{}'", value.name));
      if (!in_range(value.width, 1, kMaxDim) || !in_range(value.rows_per_row, 1, kMaxHeads) ||
          value.width * value.rows_per_row > kMaxRowElems ||
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
      if (!in_range(blob.rows, 1, kMaxDim) || !in_range(blob.cols, 1, kMaxDim) ||
          !in_range(blob.matrices, 1, kMaxHeads) ||
          blob.rows * blob.cols > kMaxBlobElems / blob.matrices ||
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

  void check_slots() {
    for (const KvSlot& slot : graph_.kv_slots) {
      if (!in_range(slot.kv_heads, 1, kMaxHeads) || !in_range(slot.key_dim, 1, kMaxDim) ||
          !in_range(slot.value_dim, 0, kMaxDim) || !in_range(slot.window, 0, kMaxDim)) {
        fail(fmt::format("a KV slot of {} heads with keys of {}, values of {} and a window of {}",
                         slot.kv_heads, slot.key_dim, slot.value_dim, slot.window));
      }
      flow_.kv_slots.push_back({slot.kv_heads, slot.key_dim, slot.value_dim, slot.window});
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
      const bool ok = operand_count_fits(names, static_cast<int64_t>(count));
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

  OpOperand operand(const View& view) const {
    if (view.value == kAbsent) return {};
    const Value& value = graph_.values[view.value];
    return {view.value,  value.type,  value.rows, value.rows_per_row,
            value.width, view.offset, view.width};
  }
  OpWeight weight(BlobId id) const {
    if (id == kAbsent) return {};
    const Blob& blob = graph_.blobs[id];
    return {blob.dtype, blob.rows, blob.cols, blob.matrices};
  }

  void check_step(const Step& step, std::vector<bool>& defined) {
    if (!check_operands(step, defined)) return;
    OpCheck check(step.op, step.attrs, flow_);
    for (const View& view : step.inputs) check.inputs.push_back(operand(view));
    for (const View& view : step.outputs) check.outputs.push_back(operand(view));
    for (BlobId blob : step.weights) check.weights.push_back(weight(blob));
    check_op(check);
    if (!check.ok()) return fail(check.error);
    note_outputs(check, static_cast<int64_t>(step_number_));
  }

  const StepGraph& graph_;
  DiagSink& sink_;
  OpFlow flow_;
  bool failed_ = false;
  size_t step_number_ = 0;
};

}  // namespace

void verify(const StepGraph& graph, DiagSink& sink) {
  Verifier(graph, sink).run();
}

}  // namespace ktx::steps

// Checks a step program: ids, operand counts, definition before use, and the rules of each op
// (op_rules.h), which the plan's reader checks as well. Runs after every pass that touches the
// program.
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "lib/formats/shape_limits.h"
#include "lib/formats/shape_text.h"
#include "lib/program/program.h"
#include "lib/program/step_verifier.h"

namespace ktx::program {
namespace {

class Verifier {
 public:
  Verifier(const Program& program, DiagSink& sink) : program_(program), sink_(sink) {}

  // Steps only where values, weights and slots are sound, on which their rules rely.
  void run(bool devices) {
    check_values();
    check_blobs();
    check_slots();
    if (!failed_) for_steps([&](const Step& step, size_t) { return check_operands(step); });
    if (failed_) return;
    StepVerifier steps(program_, {.devices = devices});
    for_steps([&](const Step&, size_t i) { return steps.check(i); });
  }

 private:
  void fail(const std::string& what) {
    failed_ = true;
    sink_.error({}, "", what);
  }
  // check(step, number) gives the step's mistake; empty: none.
  template <class Check>
  void for_steps(const Check& check) {
    for (size_t i = 0; i < program_.steps.size(); ++i) {
      const Step& step = program_.steps[i];
      const std::string error = check(step, i);
      if (error.empty()) continue;
      fail(fmt::format("step {} ({} of '{}'): {}", i, info(step.op).name, step.module, error));
    }
  }
  static bool in_range(int64_t value, int64_t low, int64_t high) {
    return low <= value && value <= high;
  }

  void check_values() {
    std::set<std::string_view> names;
    for (const Value& value : program_.values) {
      if (!names.insert(value.name).second) fail(fmt::format("two values '{}'", value.name));
      if (!in_range(value.width, 1, kMaxDim) || !in_range(value.rows_per_row, 1, kMaxHeads) ||
          value.width * value.rows_per_row > kMaxRowElems ||
          (is_product_input(value.type) && value.width % 32 != 0)) {
        fail(fmt::format("value '{}' has a bad width {} x {}", value.name, value.rows_per_row,
                         value.width));
      }
      if (value.buffer < kAbsent || value.buffer >= static_cast<int64_t>(program_.buffers.size())) {
        fail(fmt::format("value '{}' names buffer {}, there are {}", value.name, value.buffer,
                         program_.buffers.size()));
      }
    }
  }

  void check_blobs() {
    for (const Blob& blob : program_.blobs) {
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
    for (const KvSlot& slot : program_.kv_slots) {
      if (!in_range(slot.kv_heads, 1, kMaxHeads) || !in_range(slot.key_dim, 1, kMaxDim) ||
          !in_range(slot.value_dim, 0, kMaxDim) || !in_range(slot.window, 0, kMaxDim)) {
        fail(fmt::format("a KV slot of {} heads with keys of {}, values of {} and a window of {}",
                         slot.kv_heads, slot.key_dim, slot.value_dim, slot.window));
      }
    }
  }

  std::string operand_mistake(const View& view) const {
    const auto values = static_cast<int64_t>(program_.values.size());
    if (view.value == kAbsent) return "";
    if (view.value < 0 || view.value >= values) {
      return fmt::format("operand names value {}, there are {}", view.value, values);
    }
    const Value& value = program_.values[view.value];
    const int64_t whole = row_elements(value);
    if (view.offset >= 0 && view.width > 0 && view.offset <= whole &&
        view.width <= whole - view.offset) {
      return "";
    }
    return fmt::format("operand of {} elements from {} lies outside value '{}' of {}", view.width,
                       view.offset, value.name, whole);
  }

  std::string check_operands(const Step& step) const {
    for (const auto* operands : {&step.inputs, &step.outputs}) {
      for (const View& view : *operands) {
        if (std::string mistake = operand_mistake(view); !mistake.empty()) return mistake;
      }
    }
    const auto blobs = static_cast<int64_t>(program_.blobs.size());
    const bool there = std::ranges::all_of(
        step.weights, [&](BlobId blob) { return in_range(blob, kAbsent, blobs - 1); });
    return there ? "" : "names a weight that does not exist";
  }

  const Program& program_;
  DiagSink& sink_;
  bool failed_ = false;
};

}  // namespace

void verify(const Program& program, DiagSink& sink, bool devices) {
  Verifier(program, sink).run(devices);
}

}  // namespace ktx::program

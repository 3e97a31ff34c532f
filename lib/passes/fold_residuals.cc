// Lets a product add to the residual stream itself.
//
//   o = matmul(a)              becomes     x += matmul(a)
//   x = add(x, o)
//
// where nothing else reads o, nothing between the two touches x, and the product waits for no
// more than before: what wrote x last is among the steps that its inputs are made of. So routed
// experts add to x, and shared experts, which run beside them, are added. What a norm computes
// (post-norms) or another device (insert-transfers) is added, too.
//
// o then needs no memory; its value goes.
#include <algorithm>
#include <set>

#include "lib/passes/pass.h"

namespace ktx::passes {
namespace {

using program::Step;
using program::ValueId;
using program::View;

bool names(const std::vector<View>& views, ValueId value) {
  return std::ranges::any_of(views, [&](const View& view) { return view.value == value; });
}
bool touches(const Step& step, ValueId value) {
  return names(step.inputs, value) || names(step.outputs, value);
}

void accumulate(StepAttrs& attrs) {
  std::visit(
      [](auto& a) {
        if constexpr (requires { a.accumulate; }) a.accumulate = 1;
      },
      attrs);
}

class Folder {
 public:
  explicit Folder(program::Program& program)
      : program_(program), users_(program.values.size()), folded_(program.steps.size()) {
    for (const Step& step : program.steps) {
      for (const auto* views : {&step.inputs, &step.outputs}) {
        for (const View& view : *views) {
          if (view.value != program::kAbsent) ++users_[view.value];
        }
      }
    }
  }

  void run() {
    for (size_t i = 0; i < program_.steps.size(); ++i) {
      if (program_.steps[i].op == StepOp::Add) fold(i);
    }
    drop_folded();
  }

 private:
  // The last step before `end` that writes the value; `end` when there is none.
  size_t writer_before(size_t end, ValueId value) const {
    for (size_t i = end; i-- > 0;) {
      if (!folded_[i] && names(program_.steps[i].outputs, value)) return i;
    }
    return end;
  }

  // The same, of the value that transfers have brought there.
  size_t origin_before(size_t end, ValueId value) const {
    size_t writer = writer_before(end, value);
    while (writer < end && program_.steps[writer].op == StepOp::Transfer) {
      end = writer;
      writer = writer_before(end, program_.steps[end].inputs[0].value);
    }
    return writer;
  }

  // Whether the step at `last` is made of what the step at `first` writes.
  bool waits_for(size_t last, size_t first) const {
    std::set<ValueId> needed;
    const auto need = [&](const Step& step) {
      for (const View& view : step.inputs) needed.insert(view.value);
    };
    need(program_.steps[last]);
    for (size_t i = last; i-- > first;) {
      const Step& step = program_.steps[i];
      const bool made_here = std::ranges::any_of(
          step.outputs, [&](const View& view) { return needed.contains(view.value); });
      if (folded_[i] || !made_here) continue;
      if (i == first) return true;
      need(step);
    }
    return false;
  }

  void fold(size_t at) {
    const Step& add = program_.steps[at];
    const View& stream = add.inputs[0];
    const View& term = add.inputs[1];
    if (!(add.outputs[0] == stream) || users_[term.value] != 2) return;  // product and add
    const size_t maker = writer_before(at, term.value);
    if (maker == at) return;
    Step& product = program_.steps[maker];
    if (!info(product.op).has(kAccumulates) || product.device != add.device ||
        !(product.outputs[0] == term) || accumulates(product.attrs)) {
      return;
    }
    for (size_t i = maker; i < at; ++i) {
      if (!folded_[i] && touches(program_.steps[i], stream.value)) return;
    }
    const size_t origin = origin_before(maker, stream.value);
    if (origin == maker || !waits_for(maker, origin)) return;
    accumulate(product.attrs);
    product.outputs[0] = stream;
    users_[term.value] = 0;
    folded_[at] = true;
  }

  // Takes out the additions, and the values that nothing names any more.
  void drop_folded() {
    std::vector<Step> steps;
    for (size_t i = 0; i < program_.steps.size(); ++i) {
      if (!folded_[i]) steps.push_back(std::move(program_.steps[i]));
    }
    std::vector<program::Value> values;
    std::vector<ValueId> ids(program_.values.size(), program::kAbsent);
    for (size_t i = 0; i < program_.values.size(); ++i) {
      if (users_[i] == 0) continue;
      ids[i] = static_cast<ValueId>(values.size());
      values.push_back(std::move(program_.values[i]));
    }
    for (Step& step : steps) {
      for (auto* views : {&step.inputs, &step.outputs}) {
        for (View& view : *views) {
          if (view.value != program::kAbsent) view.value = ids[view.value];
        }
      }
    }
    program_.steps = std::move(steps);
    program_.values = std::move(values);
  }

  program::Program& program_;
  std::vector<int> users_;    // by value: how many operands name it
  std::vector<bool> folded_;  // by step: an addition that a product does
};

}  // namespace

Status fold_residuals(CompileState& state) {
  Folder(state.program).run();
  return {};
}

}  // namespace ktx::passes

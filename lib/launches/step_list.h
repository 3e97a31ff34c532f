// The steps of a model in the form that this folder works on. It is filled from the step graph
// (lib/steps/graph_step_list.h) and from a plan (lib/plan/plan_program.h), so that the compiler's
// choices and the runtime's checks share their code. All indices are valid: the verifiers of both
// run first.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "lib/formats/dtype.h"
#include "lib/formats/layout.h"
#include "lib/ops/step_attrs.h"
#include "lib/ops/step_ops.h"

namespace ktx::launches {

inline constexpr int32_t kNone = -1;

struct ListedOperand {
  int32_t value = kNone;  // kNone: absent
  int64_t offset = 0;     // elements
  int64_t width = 0;
  bool operator==(const ListedOperand&) const = default;
};

struct ListedWeight {
  DType dtype = DType::F32;
  Layout layout = Layout::Rows;
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t matrices = 0;  // 0: absent
  int32_t blob = kNone;  // equal numbers: the same bytes
  bool present() const { return matrices != 0; }
};

struct ListedStep {
  StepOp op = StepOp::Embed;
  int32_t layer = -1;  // -1: of none
  std::string device;
  std::vector<ListedOperand> inputs, outputs;
  std::vector<ListedWeight> weights;
  StepAttrs attrs;
};

struct ListedValue {
  int32_t buffer = kNone;  // kNone: the arena is not planned yet
  RowKind rows = RowKind::Token;
  int64_t row_elements = 0;  // of a whole row
  int64_t rows_per_row = 1;
};

struct StepList {
  std::vector<ListedStep> steps;
  std::vector<ListedValue> values;
  int32_t logits = kNone;  // a value

  int32_t input(size_t step, size_t operand) const {
    const auto& all = steps[step].inputs;
    return operand < all.size() ? all[operand].value : kNone;
  }
  int32_t output(size_t step, size_t operand = 0) const {
    const auto& all = steps[step].outputs;
    return operand < all.size() ? all[operand].value : kNone;
  }
  // The last step that writes a value; steps.size() where none does.
  size_t last_writer(int32_t value) const;
  // The product that the logits come from; steps.size() where they come from another step.
  size_t head() const;
};

}  // namespace ktx::launches

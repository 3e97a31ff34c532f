#include "lib/launches/step_list.h"

#include <algorithm>

namespace ktx::launches {

size_t StepList::last_writer(int32_t value) const {
  for (size_t i = steps.size(); i-- > 0;) {
    if (std::ranges::find(steps[i].outputs, value, &ListedOperand::value) !=
        steps[i].outputs.end()) {
      return i;
    }
  }
  return steps.size();
}

size_t StepList::head() const {
  size_t step = last_writer(logits);
  while (step < steps.size() && steps[step].op == StepOp::Transfer) {
    step = last_writer(input(step, 0));
  }
  return step < steps.size() && steps[step].op == StepOp::Matmul ? step : steps.size();
}

}  // namespace ktx::launches

// The steps of a group by op, as the rules of fused ops describe them to the choice of a kernel.
#pragma once

#include "kernels/gpu/gpu_kernels.h"
#include "lib/launches/launch.h"
#include "lib/launches/step_list.h"

namespace ktx::launches {

class GroupMembers {
 public:
  GroupMembers(const StepList& list, const FusedGroup& group) : list_(list), group_(group) {}

  // The `number`-th of this op in the order of the steps; nullptr: there is none.
  const ListedStep* find(StepOp op, int number = 0) const;
  const ListedStep& of(StepOp op, int number = 0) const { return *find(op, number); }
  template <class Attrs>
  const Attrs& attrs(StepOp op, int number = 0) const {
    return std::get<Attrs>(of(op, number).attrs);
  }
  // Whether rows of the operand begin at multiples of `elements` floats; buffers do.
  bool aligned(const ListedOperand& operand, int64_t elements) const;

 private:
  const StepList& list_;
  const FusedGroup& group_;
};

void add_weight(kernels::GpuForm& form, const ListedWeight& weight);

// The matmuls of a group, and the norm before them.
void add_products(kernels::GpuForm& form, const GroupMembers& steps);

}  // namespace ktx::launches

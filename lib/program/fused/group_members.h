// The steps of a group by op, as the rules of fused ops describe them to the choice of a kernel.
#pragma once

#include "kernels/gpu/gpu_kernels.h"
#include "lib/program/program.h"

namespace ktx::program {

// As a kernel sees it; of no rows where it is missing.
kernels::GpuWeight gpu_weight(const Program& program, const Step& step, size_t number);

class GroupMembers {
 public:
  GroupMembers(const Program& program, const FusedGroup& group)
      : program_(program), group_(group) {}

  // The `number`-th of this op in the order of the steps; nullptr: there is none.
  const Step* find(StepOp op, int number = 0) const;
  const Step& of(StepOp op, int number = 0) const { return *find(op, number); }
  template <class Attrs>
  const Attrs& attrs(StepOp op, int number = 0) const {
    return std::get<Attrs>(of(op, number).attrs);
  }
  kernels::GpuWeight weight(const Step& step, size_t number = 0) const {
    return gpu_weight(program_, step, number);
  }
  bool has_weight(const Step& step, size_t number) const {
    return program_.weight(step, number) != nullptr;
  }
  // Whether an rms_norm takes so many heads by themselves, all with the same weights.
  bool is_norm_of_heads(const Step& norm, int32_t heads) const {
    return std::get<RmsNormAttrs>(norm.attrs).groups == heads && weight(norm).rows == 1;
  }
  // The matmul that writes the value; nullptr: there is none.
  const Step* product_of(int32_t value) const;
  // Whether rows of the operand begin at multiples of `elements` floats; buffers do.
  bool aligned(const View& operand, int64_t elements) const;

 private:
  const Program& program_;
  const FusedGroup& group_;
};

// The steps of the shared expert of a SharedExperts group, by what reads what.
struct SharedSteps {
  explicit SharedSteps(const GroupMembers& steps);
  const Step *gate, *up, *glu, *down;
  const Step* score;  // null: it has none
};

// The matmuls of a group, and the norm before them.
void add_products(kernels::GpuForm& form, const GroupMembers& steps);

}  // namespace ktx::program

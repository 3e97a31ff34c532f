// Checks the steps of a program: operands, shapes and attributes by the rules of each op
// (lib/ops/op_rules.h), devices, and memory. The verifier behind the compiler's passes and the
// reader of plans both use it, and kernels and runtime rely on it and check nothing again.
//
//   StepVerifier steps(program, {.devices = true});
//   for (size_t i = 0; i < program.steps.size(); ++i) {
//     if (const std::string error = steps.check(i); !error.empty()) ...   // "gate is 64 wide, ..."
//   }
//
// Besides shapes, three rules concern memory:
//   * a step reads only what an earlier step wrote, and what no other value has overwritten since
//     (values share buffers; one without a buffer has memory of its own);
//   * an output does not overlap the step's inputs, unless the op may work in place and
//     the output is the input, element for element;
//   * expert numbers and their order reach the products only from a router and its
//     group_experts step with the same number of experts, so that kernels may index
//     with them.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "lib/ops/op_check.h"
#include "lib/program/program.h"

namespace ktx::program {

class StepVerifier {
 public:
  struct Options {
    int64_t vocab_size = 0;  // 0: not known
    // Whether transfers stand where steps need what another device has (from insert-transfers on):
    // then a step touches the memory of its own device alone.
    bool devices = false;
  };

  // Values, weights, slots, buffers and the indices and ranges of operands are sound. The program
  // outlives this object.
  StepVerifier(const Program& program, const Options& options);

  // The first mistake of a step; empty: none. All steps in their order, once each.
  std::string check(size_t number);

  // Whether a value is still in its memory behind the steps checked so far.
  bool holds(ValueId value) const { return memory_[buffer_of(value)].owner == value; }

 private:
  // What a buffer holds, and whose it is; none at first.
  struct Memory {
    ValueId owner = kAbsent;
    std::string_view device;
  };

  size_t buffer_of(ValueId value) const;
  OpOperand operand(const View& view) const;
  void check_operands(OpCheck& s, const Step& step) const;
  void check_parts_of_sum(OpCheck& s, const Step& step) const;
  void check_device(OpCheck& s, const Step& step);
  void check_memory(OpCheck& s) const;

  const Program& program_;
  const Options options_;
  OpFlow flow_;
  std::vector<Memory> memory_;  // by buffer, then by value of those without one
};

}  // namespace ktx::program

// What the rules of fused ops (fused/fused_<name>.cc) see of a range of steps, and where they put
// the groups that they find.
//
//   void find_gate_up(GroupSearch& search, int32_t glu) {
//     const auto gate = search.writer(search.in(glu, 0), glu);   // the step before glu's gate
//     ...
//     search.add(FusedOp::GateUp, {*gate, *up, glu}, {x}, {search.out(glu)});
//   }
#pragma once

#include <optional>
#include <set>
#include <vector>

#include "lib/program/find_fused.h"

namespace ktx::program {

// From the first step of a group to its last: more than any layer has, and the cost stays linear
// in the steps of a hostile plan.
inline constexpr int32_t kMostSpan = 256;

class GroupSearch {
 public:
  using Steps = std::vector<int32_t>;

  // Searches the steps [first, first + count); `may` says which can be in a group.
  GroupSearch(const Program& program, const Uses& uses, int32_t first, int32_t count,
              const Steps& may);
  // All groups, in the order of their last steps; a group around others comes behind them.
  std::vector<FusedGroup> run();

  const Step& step(int32_t i) const { return program_.steps[i]; }
  // Whether it has this op and is free for a group of this turn.
  bool is(int32_t i, StepOp op) const { return step(i).op == op && free_.count(i) != 0; }
  bool is_product(int32_t i) const;   // a matmul that does not add to its output
  bool is_row_norm(int32_t i) const;  // an rms_norm of whole rows
  template <class Attrs>
  const Attrs& attrs(int32_t i) const {
    return std::get<Attrs>(step(i).attrs);
  }
  int32_t first() const { return first_; }
  int32_t end() const { return end_; }

  // Values of a step.
  int32_t in(int32_t i, size_t operand) const { return program_.input(i, operand); }
  int32_t out(int32_t i, size_t operand = 0) const { return program_.output(i, operand); }
  RowKind rows(int32_t value) const { return program_.values[value].rows; }
  int32_t buffer(int32_t value) const { return program_.values[value].buffer; }
  const Steps& readers(int32_t value) const { return uses_.readers[value]; }
  // The last step of the range before `i` that writes `value`.
  std::optional<int32_t> writer(int32_t value, int32_t i) const;
  // Whether all that read the value are among `steps`.
  bool only(int32_t value, const Steps& steps) const;
  // All that read the first output of a step. Nothing, when there is none, when one of them does
  // not stand behind it in the range, or when the caller may ask for the output (RowKind::Output).
  std::optional<Steps> readers_behind(int32_t i) const;

  // A group, if it may run at the place of its last step (find_fused.h, 2 and 3). `read` and
  // `written`: values of the launch. `reads_first`: all of the one before any of the other.
  void add(FusedOp op, Steps steps, const std::vector<int32_t>& read,
           const std::vector<int32_t>& written, bool reads_first = false);

 private:
  bool adds_to_residual(int32_t i) const;

  const Program& program_;
  const Uses& uses_;
  const int32_t first_, end_;
  const Steps& may_;
  std::set<int32_t> free_;  // in no group of this turn or those before yet; of the third: of this
  std::vector<FusedGroup> found_;
};

}  // namespace ktx::program

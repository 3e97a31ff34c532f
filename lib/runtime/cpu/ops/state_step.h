// Steps with a state of each sequence (cache/state_pool.h): what delta nets and state-space layers
// share.
#pragma once

#include <algorithm>
#include <vector>

#include "lib/plan/state_layout.h"
#include "lib/runtime/cpu/ops/cpu_ops.h"
#include "lib/runtime/cpu/ops/row_step.h"

namespace ktx::runtime {

// Tokens of one sequence in a pass, and its state in this step before and after them.
struct StateRun {
  int64_t first = 0;  // row
  int64_t tokens = 0;
  const float* state_in = nullptr;  // null: zeros
  float* state_out = nullptr;
};

// Items are (sequence, part of what the op computes independently). A part is worth a thread for
// one token as well as for many. Where states are kept within a text, its tokens are computed up to
// there and then on from there, with the same bits as a result.
class StateStep : public CpuStep {
 public:
  StepWork begin(const Batch& batch) override {
    texts_.clear();
    for (int64_t row = 0; row < batch.tokens;) {
      const int32_t sequence = batch.sequence[row];
      texts_.push_back({row, &batch.states[sequence]});
      while (row < batch.tokens && batch.sequence[row] == sequence) ++row;
    }
    int64_t states = 0;  // read or written
    for (const Text& text : texts_) {
      states += std::ssize(text.states->outs) + (text.states->in != nullptr ? 1 : 0);
    }
    return {static_cast<int64_t>(texts_.size()) * parts_, weight_bytes_ + states * state_bytes_,
            nullptr};
  }
  void run(int64_t item, std::byte*) override {
    const Text& text = texts_[item / parts_];
    const float* in = text.states->in != nullptr ? text.states->in + offset_ : nullptr;
    int64_t done = 0;
    for (const StateOut& out : text.states->outs) {
      run_part({text.first + done, out.tokens - done, in, out.data + offset_}, item % parts_);
      in = out.data + offset_;
      done = out.tokens;
    }
  }

 protected:
  virtual void run_part(const StateRun& run, int64_t part) = 0;

  template <class Attrs>
  void keep_state(const BindContext& context, const Attrs& attrs) {
    offset_ = plan::state_layout(context.plan, "cpu").offset(attrs.state);
    state_bytes_ = 4 * attrs.state_floats();
  }

  // Parts of a matrix a head: some columns of it, four vectors.
  static constexpr int64_t kColumns = 64;
  void divide_heads(int64_t heads, int64_t head_dim) {
    ranges_ = ceil_div(head_dim, kColumns);
    parts_ = heads * ranges_;
  }
  template <class Args>
  void take_columns(int64_t part, Args& args) const {
    args.head = part / ranges_;
    args.column_begin = part % ranges_ * kColumns;
    args.column_end = std::min<int64_t>(args.attrs.head_dim, args.column_begin + kColumns);
  }

  // Arguments for the tokens of a run.
  template <class Args>
  static Args args_of(Args args, const StateRun& run) {
    args.x += run.first * args.x_stride;
    args.y += run.first * args.y_stride;
    args.tokens = run.tokens;
    args.state_in = run.state_in;
    args.state_out = run.state_out;
    return args;
  }

  int64_t offset_ = 0;  // floats, in a sequence's states
  int64_t parts_ = 1;
  int64_t weight_bytes_ = 0;
  int64_t state_bytes_ = 0;  // of a sequence in this step

 private:
  int64_t ranges_ = 1;  // of columns, of a head
  struct Text {
    int64_t first = 0;  // row
    const SequenceState* states = nullptr;
  };
  std::vector<Text> texts_;
};

}  // namespace ktx::runtime

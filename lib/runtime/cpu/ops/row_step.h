// A step whose rows are independent and cheap: items are runs of rows, each about
// 16 Ki elements. Used by the ops that differ only in their Args.
#pragma once

#include <algorithm>

#include "lib/runtime/cpu/cpu_step.h"

namespace ktx::runtime {

// Floats of a value as a kernel takes them: where they begin, and from row to row.
template <class T>
void point_to(const BoundView& view, T*& data, int64_t& stride) {
  data = view.f32();
  stride = view.stride();
}

// Args has token_begin and token_end. Derived classes fill args_ and run_
// when bound and may set pointers of the batch in prepare().
template <class Args, class Fn>
class RowStep : public CpuStep {
 public:
  StepWork begin(const Batch& batch) override {
    prepare(batch);
    split_.rows = batch.rows(rows_);
    return {split_.items(), weight_bytes_, nullptr, split_};
  }

  void run(int64_t item, std::byte* scratch) override {
    run_rows(split_.begin(item), split_.end(item), scratch);
  }

  void run_rows(int64_t begin, int64_t end, std::byte* scratch) override {
    Args args = args_;
    args.token_begin = begin;
    args.token_end = end;
    use_scratch(args, scratch);
    run_(args);
  }

 protected:
  // What ops that write rows of one value have in common: y, and the kernels that
  // find(family, isa) gives. Args has y, y_stride and width.
  template <class Find>
  Status bind_output(const BindContext& context, Find find) {
    const BoundView y = context.output(0);
    point_to(y, args_.y, args_.y_stride);
    args_.width = y.width;
    rows_ = y.rows;
    split_.grain = rows_per_item(y.width);
    run_ = KTX_TRY(find(context.family(), context.isa));
    return {};
  }

  virtual void prepare(const Batch&) {}
  virtual void use_scratch(Args&, std::byte*) const {}

  Args args_;
  Fn run_ = nullptr;
  RowKind rows_ = RowKind::Token;
  RowSplit split_;  // the grain is set when bound
  int64_t weight_bytes_ = 0;
};

}  // namespace ktx::runtime

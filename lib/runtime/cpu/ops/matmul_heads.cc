// matmul_heads: one product per head, straight or with the transposed weight.
//
// Items are (head, range of the head's outputs); each writes its own part of y.
#include <fmt/format.h>

#include <algorithm>

#include "kernels/matmul/matmul.h"
#include "lib/formats/layout_size.h"
#include "lib/runtime/cpu/ops/cpu_ops.h"
#include "lib/runtime/cpu/ops/matmul_input.h"

namespace ktx::runtime {
namespace {

// What both forms share: the heads and the cut of each head's outputs.
class HeadsStep : public CpuStep {
 public:
  int64_t scratch_bytes() const override {
    return kernels::matmul_scratch_bytes(weight_.matrix.cols);
  }

 protected:
  Status bind_heads(const BindContext& context) {
    weight_ = KTX_TRY(context.weight(0));
    attrs_ = context.attrs<MatmulHeadsAttrs>();
    x_ = context.input(0);
    y_ = context.output(0);
    return {};
  }
  int64_t weight_bytes() const {
    return attrs_.heads * attrs_.row_count * weight_.matrix.row_bytes;
  }
  const std::byte* head_rows(int64_t head) const {
    return weight_.matrix.data + head * weight_.matrix_bytes +
           attrs_.row_begin * weight_.matrix.row_bytes;
  }
  const float* head_x(int64_t head) const { return x_.f32() + head * attrs_.x_stride; }
  float* head_y(int64_t head) const { return y_.f32() + head * attrs_.y_stride; }

  BoundWeight weight_;
  MatmulHeadsAttrs attrs_;
  BoundView x_, y_;
  RowSplit split_;  // of one head's outputs
  int64_t tokens_ = 0;
};

class StraightStep final : public HeadsStep {
 public:
  Status bind(const BindContext& context) {
    KTX_TRY(bind_heads(context));
    xq_ = context.input(1);
    if (in_panels(weight_.matrix.layout) && attrs_.row_begin % kPanelRows != 0) {
      return Error{fmt::format("row {} begins no panel of 16 rows", attrs_.row_begin)};
    }
    kernel_ = KTX_TRY(matmul_kernel(context, weight_, xq_));
    return {};
  }
  StepWork begin(const Batch& batch) override {
    tokens_ = batch.rows(y_.rows);
    if (tokens_ == 0) return {};
    split_.rows = attrs_.row_count;
    split_.grain = std::max<int64_t>(1, kernels::matmul_chunk_rows(weight_.matrix, tokens_));
    return {attrs_.heads * split_.items(), weight_bytes(), nullptr};
  }
  void run(int64_t item, std::byte* scratch) override {
    const int64_t head = item / split_.items(), part = item % split_.items();
    kernels::MatmulArgs args;
    args.w = weight_.matrix;
    args.w.data = head_rows(head);
    args.w.rows = attrs_.row_count;
    args.x = head_x(head);
    args.x_stride = x_.stride();
    if (xq_.data) {
      args.xq = xq_.data + head * (xq_.stride_bytes / attrs_.heads);
      args.xq_stride = xq_.stride_bytes;
    }
    args.tokens = tokens_;
    args.y = head_y(head);
    args.y_stride = y_.stride();
    args.row_begin = split_.begin(part);
    args.row_end = split_.end(part);
    args.scratch = scratch;
    kernel_(args);
  }

 private:
  BoundView xq_;
  kernels::MatmulKernel kernel_;
};

class TransposedStep final : public HeadsStep {
 public:
  Status bind(const BindContext& context) {
    KTX_TRY(bind_heads(context));
    if (weight_.matrix.layout != Layout::Rows) {
      return Error{
          fmt::format("a transposed product of weights in layout {}", name(weight_.matrix.layout))};
    }
    run_ = KTX_TRY(
        kernels::find_matmul_transposed(context.family(), weight_.matrix.dtype, context.isa));
    return {};
  }
  StepWork begin(const Batch& batch) override {
    tokens_ = batch.rows(y_.rows);
    if (tokens_ == 0) return {};
    split_.rows = weight_.matrix.cols;
    split_.grain = kernels::kTransposedCols;
    return {attrs_.heads * split_.items(), weight_bytes(), nullptr};
  }
  void run(int64_t item, std::byte* scratch) override {
    const int64_t head = item / split_.items(), part = item % split_.items();
    kernels::MatmulTransposedArgs args;
    args.w = weight_.matrix;
    args.w.data = weight_.matrix.data + head * weight_.matrix_bytes;
    args.row_begin = attrs_.row_begin;
    args.row_count = attrs_.row_count;
    args.x = head_x(head);
    args.x_stride = x_.stride();
    args.tokens = tokens_;
    args.y = head_y(head);
    args.y_stride = y_.stride();
    args.col_begin = split_.begin(part);
    args.col_end = split_.end(part);
    args.scratch = scratch;
    run_(args);
  }

 private:
  kernels::MatmulTransposedFn run_ = nullptr;
};

}  // namespace

const MakeStep make_matmul_heads = [](const BindContext& context) {
  const bool transposed = context.attrs<MatmulHeadsAttrs>().transposed;
  return transposed ? make_step<TransposedStep>(context) : make_step<StraightStep>(context);
};

}  // namespace ktx::runtime

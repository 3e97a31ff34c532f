// The row ops (kernels/rows/row_ops.def), and pool_rows.
#include "kernels/rows/rows.h"
#include "kernels/rows/pool_rows.h"

#include "lib/runtime/cpu/ops/cpu_ops.h"
#include "lib/runtime/cpu/ops/row_step.h"

namespace ktx::runtime {
namespace {

using namespace kernels;

// A value of several rows per row is dense, so the row step sees one long row.
class RowsStep final : public RowStep<RowsArgs, RowsFn> {
 public:
  Status bind(const BindContext& context) {
    for (int i = 0; i < kRowsInputs; ++i) {
      point_to(context.input(i), args_.in[i].data, args_.in[i].stride);
    }
    const auto op = context.step.op;
    args_.attrs = context.step.attrs;
    reads_any_row_ = info(op).has(kReadsAnyRow);
    reads_position_ = info(op).has(kReadsPosition);
    if (op == StepOp::HeadScale) heads_ = context.attrs<HeadScaleAttrs>().heads;
    return bind_output(context, find_rows);
  }
  void run_rows(int64_t begin, int64_t end, std::byte* scratch) override {
    if (heads_ == 1) return RowStep::run_rows(begin, end, scratch);
    RowsArgs args = args_;
    args.token_begin = begin;
    args.token_end = end;
    make_heads_rows(args, heads_);
    run_(args);
  }
  // Column-wise ops: each operand has these columns.
  void run_region(const OutputRegion& region, std::byte*) override {
    RowsArgs args = args_;
    for (RowsInput& in : args.in) {
      if (in.data) in.data += region.col_begin;
    }
    args.y += region.col_begin;
    args.width = region.col_end - region.col_begin;
    args.token_begin = region.begin;
    args.token_end = region.end;
    run_(args);
  }

 private:
  void prepare(const Batch& batch) override {
    if (reads_any_row_) args_.from = batch.output_rows.data();
    if (reads_position_) args_.position = batch.position.data();
  }
  bool reads_any_row_ = false, reads_position_ = false;
  int32_t heads_ = 1;  // of head_scale
};

class PoolRowsStep final : public RowStep<PoolRowsArgs, PoolRowsFn> {
 public:
  Status bind(const BindContext& context) {
    const BoundView x = context.input(0);
    args_.x = x.f32();
    args_.x_stride = x.stride();
    args_.attrs = context.attrs<PoolRowsAttrs>();
    KTX_TRY(bind_output(context, find_pool_rows));
    args_.width = x.width;
    return {};
  }
  StepWork begin(const Batch& batch) override {
    const int64_t side = args_.attrs.side;
    for (int64_t r = 0; r < batch.outputs; ++r) {
      const int64_t first = batch.output_rows[r];
      if (batch.columns < 1 || first % batch.columns + side > batch.columns ||
          first + args_.attrs.reach(batch.columns) >= batch.tokens) {
        return {0, 0, "a square of patches ends outside of its image"};
      }
    }
    return RowStep::begin(batch);
  }

 private:
  void prepare(const Batch& batch) override {
    args_.first = batch.output_rows.data();
    args_.columns = batch.columns;
  }
};

}  // namespace

const MakeStep make_pool_rows = make_step<PoolRowsStep>;
const MakeStep make_rows = make_step<RowsStep>;

}  // namespace ktx::runtime

// embed and embed_row: rows of a table, by token or by position.
#include "kernels/embed/embed.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "kernels/kernel_id.h"
#include "lib/runtime/cpu/ops/cpu_ops.h"
#include "lib/runtime/cpu/ops/row_step.h"

namespace ktx::runtime {
namespace {

struct EmbedStep : RowStep<kernels::EmbedArgs, kernels::EmbedFn> {
  Status bind(const BindContext& context) {
    const BoundWeight table = KTX_TRY(context.weight(0));
    const BoundView y = context.output(0);
    args_.table = table.matrix;
    args_.y = y.f32();
    args_.y_stride = y.stride();
    split_.grain = rows_per_item(y.width);
    functions_ = KTX_TRY(context.functions<kernels::EmbedFn>(
        [&](std::string_view family) -> Result<kernels::EmbedFn> {
          const kernels::KernelFamily* row = kernels::find_kernel_family(family);
          if (row && row->layout != table.matrix.layout) {
            return Error{fmt::format("kernel {} does not read a table in layout {}", family,
                                     name(table.matrix.layout))};
          }
          return kernels::find_embed(family, context.isa);
        }));
    return {};
  }
  StepWork begin(const Batch& batch) override {
    for (int64_t i = 0; i < batch.tokens; ++i) {
      if (batch.ids[i] >= args_.table.rows) return {0, 0, "a token id is outside of the table"};
    }
    return RowStep::begin(batch);
  }
  void prepare(const Batch& batch) override {
    args_.ids = batch.ids.data();
    weight_bytes_ = batch.tokens * args_.table.row_bytes;
  }
};

// The positions of a pass are the numbers of rows; or all numbers are one.
struct EmbedRowStep final : EmbedStep {
  Status bind(const BindContext& context) {
    row_ = context.attrs<EmbedRowAttrs>().row;
    return EmbedStep::bind(context);
  }
  StepWork begin(const Batch& batch) override {
    rows_.resize(std::max(rows_.size(), static_cast<size_t>(batch.tokens)), row_);
    for (int64_t i = 0; row_ < 0 && i < batch.tokens; ++i) {
      if (batch.position[i] >= args_.table.rows) {
        return {0, 0, "the text is longer than the model's table of positions"};
      }
    }
    return RowStep::begin(batch);
  }
  void prepare(const Batch& batch) override {
    args_.ids = row_ < 0 ? batch.position.data() : rows_.data();
    weight_bytes_ = batch.tokens * args_.table.row_bytes;
  }
  int32_t row_ = -1;
  std::vector<int32_t> rows_;  // that number, for each token of the largest pass so far
};

}  // namespace

Result<std::unique_ptr<CpuStep>> make_embed(const BindContext& context) {
  return make_step<EmbedStep>(context);
}

Result<std::unique_ptr<CpuStep>> make_embed_row(const BindContext& context) {
  return make_step<EmbedRowStep>(context);
}

}  // namespace ktx::runtime

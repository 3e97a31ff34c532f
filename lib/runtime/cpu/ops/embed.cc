// embed and embed_row: rows of a table, by token or by position. embed_grid: by place in an image.
// given_hidden: the rows of the pass. given_rows: those that come with some of its tokens.
#include "kernels/embed/embed.h"
#include "kernels/embed/embed_grid.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

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
    KTX_TRY(require_layout(context.family(), table));
    run_ = KTX_TRY(kernels::find_embed(context.family(), context.isa));
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

struct EmbedGridStep final : RowStep<kernels::EmbedGridArgs, kernels::EmbedGridFn> {
  Status bind(const BindContext& context) {
    const BoundWeight table = KTX_TRY(context.weight(0));
    const BoundView y = context.output(0);
    args_.table = table.matrix;
    args_.side = context.attrs<EmbedGridAttrs>().side;
    point_to(y, args_.y, args_.y_stride);
    split_.grain = rows_per_item(y.width);
    KTX_TRY(require_layout(context.family(), table));
    run_ = KTX_TRY(kernels::find_embed_grid(context.family(), context.isa));
    return {};
  }
  StepWork begin(const Batch& batch) override {
    if (batch.columns < 1) return {0, 0, "patches without a grid"};
    return RowStep::begin(batch);
  }
  void prepare(const Batch& batch) override {
    args_.line = batch.axis(TokenAxis::Line).data();
    args_.column = batch.axis(TokenAxis::Column).data();
    args_.columns = batch.columns;
    args_.lines = batch.tokens / batch.columns;
    weight_bytes_ = args_.table.rows * args_.table.row_bytes;
  }
  void use_scratch(kernels::EmbedGridArgs& args, std::byte* scratch) const override {
    args.scratch = reinterpret_cast<float*>(scratch);
  }
  int64_t scratch_bytes() const override {
    return args_.table.cols * static_cast<int64_t>(sizeof(float));
  }
};

// The table is what came with the pass, token by token: rows of `row` elements, of which the step
// has those from `first` on.
struct RowsOfPass : RowStep<kernels::EmbedArgs, kernels::EmbedFn> {
 protected:
  Status bind_rows(const BindContext& context, const BoundView& y, int64_t row, int64_t first) {
    args_.y = y.f32();
    args_.y_stride = y.stride();
    args_.table.dtype = DType::F32;
    args_.table.cols = y.width;
    args_.table.row_bytes = row * static_cast<int64_t>(sizeof(float));
    first_ = first;
    split_.grain = rows_per_item(y.width);
    run_ = KTX_TRY(kernels::find_embed(context.family(), context.isa));
    return {};
  }
  void take_rows(const Batch& batch, const int32_t* ids) {
    args_.table.data = reinterpret_cast<const std::byte*>(batch.hidden.data() + first_);
    args_.table.rows = batch.tokens;
    args_.ids = ids;
  }
  int64_t first_ = 0;
};

struct GivenHiddenStep final : RowsOfPass {
  Status bind(const BindContext& context) {
    const BoundView y = context.output(0);
    if (y.width != context.plan.facts.given_width) {
      return Error{fmt::format("rows of {} elements, with tokens come {}", y.width,
                               context.plan.facts.given_width)};
    }
    return bind_rows(context, y, y.width, 0);
  }
  StepWork begin(const Batch& batch) override {
    if (std::ssize(batch.hidden) < batch.tokens * args_.table.cols) {
      return {0, 0, "no hidden states came with the tokens"};
    }
    return RowStep::begin(batch);
  }
  void prepare(const Batch& batch) override {
    for (auto next = std::ssize(rows_); next < batch.tokens; ++next) {
      rows_.push_back(static_cast<int32_t>(next));
    }
    take_rows(batch, rows_.data());
  }
  std::vector<int32_t> rows_;  // 0, 1, 2 ..., as many as the largest pass had tokens
};

// Rows of the tokens that come with one of their own; the others keep what they have.
struct GivenRowsStep final : RowsOfPass {
  Status bind(const BindContext& context) {
    const BoundView x = context.input(0), y = context.output(0);
    if (x.data != y.data) return Error{"the rows of images are not put in place"};
    const int64_t part = context.attrs<GivenRowsAttrs>().part;
    adds_ = part > 0;
    return bind_rows(context, y, context.plan.facts.image.row_width(), part * y.width);
  }
  StepWork begin(const Batch& batch) override {
    const int64_t bytes = std::ssize(batch.hidden) * static_cast<int64_t>(sizeof(float));
    if (std::ssize(batch.given_row) < batch.tokens ||
        bytes < batch.tokens * args_.table.row_bytes) {
      return {0, 0, "tokens without room for rows of images"};
    }
    return RowStep::begin(batch);
  }
  void prepare(const Batch& batch) override { take_rows(batch, batch.given_row.data()); }
  void run_rows(int64_t begin, int64_t end, std::byte* scratch) override {
    for (int64_t t = begin; t < end;) {
      int64_t next = t;
      while (next < end && args_.ids[next] >= 0) ++next;
      if (adds_) {
        for (int64_t row = t; row < next; ++row) add(row);
      } else if (next > t) {
        RowStep::run_rows(t, next, scratch);
      }
      t = next + 1;
    }
  }
  void add(int64_t t) const {
    const auto* const from =
        reinterpret_cast<const float*>(args_.table.data + args_.ids[t] * args_.table.row_bytes);
    float* const y = args_.y + t * args_.y_stride;
    for (int64_t i = 0; i < args_.table.cols; ++i) y[i] += from[i];
  }
  bool adds_ = false;
};

}  // namespace

const MakeStep make_embed_grid = make_step<EmbedGridStep>;
const MakeStep make_given_rows = make_step<GivenRowsStep>;
const MakeStep make_given_hidden = make_step<GivenHiddenStep>;
const MakeStep make_embed = make_step<EmbedStep>;
const MakeStep make_embed_row = make_step<EmbedRowStep>;

}  // namespace ktx::runtime

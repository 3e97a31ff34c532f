// matmul: all tokens against a range of rows of the weight.
#include "kernels/matmul/matmul.h"

#include <algorithm>

#include "lib/runtime/cpu/ops/cpu_ops.h"
#include "lib/runtime/cpu/ops/low_rank.h"
#include "lib/runtime/cpu/ops/matmul_input.h"
#include "lib/runtime/cpu/ops/row_runs.h"
#include "lib/runtime/cpu/ops/small_weight.h"

namespace ktx::runtime {
namespace {

class MatmulStep final : public CpuStep {
 public:
  Status bind(const BindContext& context) {
    const BoundView x = context.input(0), xq = context.input(1), y = context.output(0);
    const BoundWeight w = KTX_TRY(context.weight(0));
    bias_ = KTX_TRY(SmallWeight::make(KTX_TRY(context.optional_weight(1))));
    kernel_ = KTX_TRY(matmul_kernel(context, w, xq));
    args_.w = w.matrix;
    args_.w.rows *= w.matrices;  // several matrices are one with all rows
    args_.x = x.f32();
    args_.x_stride = x.stride();
    args_.xq = xq.data;
    args_.xq_stride = xq.stride_bytes;
    input_ = xq.type;
    args_.y = y.f32();
    args_.y_stride = y.stride();
    args_.bias = bias_.data();
    args_.accumulate = context.attrs<MatmulAttrs>().accumulate != 0;
    rows_ = y.rows;
    KTX_TRY(low_rank_.bind(context.lora, rows_, context.isa));
    threads_ = context.threads;
    shares_ = context.shares;
    weight_bytes_ = w.bytes() + bias_.bytes();
    return {};
  }

  StepWork begin(const Batch& batch) override {
    batch_ = &batch;
    args_.tokens = batch.rows(rows_);
    if (args_.tokens == 0) return {};
    tokens_.rows = args_.tokens;
    tokens_.grain = kernels::matmul_chunk_tokens(args_.w, args_.tokens, input_);
    runs_ = cut();
    return {runs_.count() * tokens_.items(), weight_bytes_, nullptr};
  }

  void run(int64_t item, std::byte* scratch) override { run_region(region(item), scratch); }

  OutputRegion done(int64_t item) override { return region(item); }
  void lead_part(int64_t products, int64_t column_group) override {
    products_ = products;
    columns_ = column_group;
  }
  const kernels::WeightMatrix* weight() const override { return &args_.w; }
  void followed_by(const kernels::WeightMatrix& weight, bool later) override {
    if (weight.dtype != args_.w.dtype || weight.cols != args_.w.cols) return;
    next_ = &weight;
    next_later_ = later;
  }

  void run_region(const OutputRegion& region, std::byte* scratch) override {
    kernels::MatmulArgs args = args_;
    args.tokens = region.end - region.begin;
    args.x += region.begin * args.x_stride;
    if (args.xq) args.xq += region.begin * args.xq_stride;
    args.y += region.begin * args.y_stride;
    args.row_begin = region.col_begin;
    args.row_end = region.col_end;
    args.scratch = scratch;
    if (next_) {
      // Threads take items in turn: this one's next is likely so many further.
      const int64_t further = threads_ * (region.col_end - region.col_begin);
      const int64_t row = region.col_begin + (next_later_ ? further : 0);
      if (row < next_->rows) args.next = next_->data + row * next_->row_bytes;
    }
    kernel_(args);
    if (low_rank_.any()) low_rank_.add(*batch_, region, args_.y, args_.y_stride, scratch);
  }

  int64_t scratch_bytes() const override {
    return std::max(kernels::matmul_scratch_bytes(args_.w.cols), low_rank_.scratch_bytes());
  }

 private:
  // Rows of the last items of a prompt, for which threads wait. (Each item copies its tokens'
  // activations.)
  static constexpr int64_t kShortestRun = 32;

  OutputRegion region(int64_t item) const {
    // The long runs of all tokens, then the short ones, which are the last items. In each group a
    // chunk of tokens takes all runs before the next chunk begins: its activations stay in the
    // second cache (run after run, prompts of 2,048 on four threads took 1.04 of the time).
    const int64_t longs = runs_.of_first_length(), first = tokens_.items() * longs;
    const bool is_long = item < first;
    const int64_t each = is_long ? longs : runs_.count() - longs;
    const int64_t place = is_long ? item : item - first;
    const int64_t tokens = place / each, rows = place % each + (is_long ? 0 : longs);
    return {nullptr, tokens_.begin(tokens), tokens_.end(tokens), runs_.begin(rows),
            runs_.end(rows)};
  }
  RowRuns cut() const {
    const int64_t rows = args_.w.rows;
    // With few tokens an item reads as many bytes whether it has one product or more; with
    // many tokens, what a tile prepares once serves all rows of a product.
    if (is_stream(args_.w, args_.tokens)) {
      return stream_runs({args_.w, products_, products_, columns_, threads_, shares_});
    }
    int64_t grain = std::max<int64_t>(1, kernels::matmul_chunk_rows(args_.w, args_.tokens));
    // Prompts: fewer rows an item when threads would wait for the last one.
    while (args_.tokens > kernels::kStreamTokens && grain > 32 &&
           ceil_div(rows, grain) * tokens_.items() < 4 * threads_) {
      grain /= 2;
    }
    if (products_ > 1 && args_.tokens <= kDecodeTokens) {
      grain = std::max<int64_t>(1, grain / products_);
    }
    const int64_t each = ceil_div(grain, columns_) * columns_;
    if (args_.tokens <= kDecodeTokens || shares_ > 1) return RowRuns::even(rows, each);
    return RowRuns::falling(
        rows, {std::min(each, kShortestRun), each, columns_, ceil_div(threads_, tokens_.items())});
  }

  kernels::MatmulArgs args_;
  kernels::MatmulKernel kernel_;
  SmallWeight bias_;
  LowRankTerms low_rank_;
  const Batch* batch_ = nullptr;  // of the pass at hand
  ValueType input_ = ValueType::Q8;
  RowKind rows_ = RowKind::Token;
  RowRuns runs_;
  RowSplit tokens_;
  int64_t threads_ = 1;
  int64_t shares_ = 1;
  int64_t products_ = 1;
  int64_t columns_ = 32;
  const kernels::WeightMatrix* next_ = nullptr;  // read after this one, see CpuStep::followed_by
  bool next_later_ = false;
  int64_t weight_bytes_ = 0;
};

}  // namespace

const MakeStep make_matmul = make_step<MatmulStep>;

}  // namespace ktx::runtime

#include "lib/runtime/cpu/ops/low_rank.h"

#include <algorithm>

#include "kernels/matmul/matmul.h"
#include "lib/program/stages.h"

namespace ktx::runtime {
namespace {

// Rows of A in an item, so that threads share one of rank 16; and tokens, which a kernel of many
// tokens takes at once.
constexpr int64_t kItemRows = 4;
constexpr int64_t kItemTokens = 64;

Result<std::vector<kernels::MatmulKernel>> kernels_for(
    const LoraProduct& product, std::string_view family,
    const kernels::WeightMatrix LoraTerm::*matrix, Isa isa) {
  std::vector<kernels::MatmulKernel> found;
  for (const LoraTerm& term : product.terms) {
    found.push_back(KTX_TRY(kernels::find_matmul(family, (term.*matrix).dtype, isa)));
  }
  return found;
}

// Calls use(run, term, scale) for each run of rows and each term of its adapters.
template <class Use>
void for_each_term(const Batch& batch, RowKind rows, const LoraProduct& product, const Use& use) {
  for (const LoraRun& run : batch.lora_runs[static_cast<size_t>(rows)]) {
    for (const LoraUse& chosen : *run.choice) {
      for (size_t t = 0; t < product.terms.size(); ++t) {
        if (product.terms[t].adapter == chosen.adapter) use(run, t, chosen.scale);
      }
    }
  }
}

class LowRankStep final : public CpuStep {
 public:
  Status bind(const BindContext& context, const LoraProduct& product) {
    const BoundView x = context.input(0);
    x_ = x.f32();
    x_stride_ = x.stride();
    rows_ = context.output(0).rows;
    product_ = &product;
    kernels_ = KTX_TRY(kernels_for(product, "matmul_rows_f32", &LoraTerm::a, context.isa));
    return {};
  }

  StepWork begin(const Batch& batch) override {
    items_.clear();
    int64_t bytes = 0;
    for_each_term(batch, rows_, *product_, [&](const LoraRun& run, size_t term, float scale) {
      if (!product_->terms[term].computes_low) return;
      const kernels::WeightMatrix& a = product_->terms[term].a;
      bytes += a.rows * a.row_bytes;
      for (int64_t token = 0; token < run.rows; token += kItemTokens) {
        const int64_t tokens = std::min(kItemTokens, run.rows - token);
        for (int64_t row = 0; row < a.rows; row += kItemRows) {
          items_.push_back({term, scale * product_->terms[term].scale, run.first + token, tokens,
                            row, std::min(a.rows, row + kItemRows)});
        }
      }
    });
    return {std::ssize(items_), bytes, nullptr};
  }

  void run(int64_t number, std::byte* scratch) override {
    const Item& item = items_[static_cast<size_t>(number)];
    const LoraTerm& term = product_->terms[item.term];
    kernels::MatmulArgs args;
    args.w = term.a;
    args.x = x_ + item.first * x_stride_;
    args.x_stride = x_stride_;
    args.tokens = item.tokens;
    args.y = product_->low + item.first * product_->low_stride + term.place;
    args.y_stride = product_->low_stride;
    args.row_begin = item.row_begin;
    args.row_end = item.row_end;
    args.scratch = scratch;
    kernels_[item.term](args);
    for (int64_t t = 0; t < item.tokens; ++t) {
      for (int64_t r = item.row_begin; r < item.row_end; ++r) {
        args.y[t * args.y_stride + r] *= item.scale;
      }
    }
  }

  int64_t scratch_bytes() const override {
    return kernels::matmul_scratch_bytes(product_->terms[0].a.cols);
  }

 private:
  struct Item {
    size_t term;
    float scale;
    int64_t first, tokens;
    int64_t row_begin, row_end;  // of A
  };
  const LoraProduct* product_ = nullptr;
  const float* x_ = nullptr;
  int64_t x_stride_ = 0;
  RowKind rows_ = RowKind::Token;
  std::vector<kernels::MatmulKernel> kernels_;
  std::vector<Item> items_;
};

}  // namespace

Result<std::unique_ptr<CpuStep>> make_low_rank(const BindContext& context,
                                               const LoraProduct& product) {
  auto step = std::make_unique<LowRankStep>();
  KTX_TRY(step->bind(context, product));
  return std::unique_ptr<CpuStep>(std::move(step));
}

StepFacts low_rank_facts(const StepFacts& product, const StepAccess& room) {
  StepFacts facts;
  facts.op = StepOp::MatmulHeads;  // the traits of one that is shared out by itself
  facts.rows = product.rows;
  facts.accesses = {product.accesses[0], room};  // x
  return facts;
}

// (Behind the KV slots and what steps of attention share.)
StepAccess low_rank_room(const program::Program& program, const LoraProduct& product, bool write) {
  return program::slot_access(static_cast<int32_t>(program.kv_slots.size()) + 1 + product.room,
                              write);
}

Status LowRankTerms::bind(const LoraProduct* product, RowKind rows, Isa isa) {
  product_ = product;
  rows_ = rows;
  if (product) kernels_ = KTX_TRY(kernels_for(*product, "matmul_panel16_f32", &LoraTerm::b, isa));
  return {};
}

int64_t LowRankTerms::scratch_bytes() const {
  int64_t most = 0;
  if (!product_) return most;
  for (const LoraTerm& term : product_->terms) {
    most = std::max(most, kernels::matmul_scratch_bytes(term.b.cols));
  }
  return most;
}

void LowRankTerms::add(const Batch& batch, const OutputRegion& region, float* y, int64_t y_stride,
                       std::byte* scratch) const {
  for_each_term(batch, rows_, *product_, [&](const LoraRun& run, size_t number, float) {
    const LoraTerm& term = product_->terms[number];
    const int64_t begin = std::max(region.begin, run.first);
    const int64_t end = std::min(region.end, run.first + run.rows);
    kernels::MatmulArgs args;
    args.row_begin = std::max<int64_t>(0, region.col_begin - term.first_column);
    args.row_end = std::min(term.b.rows, region.col_end - term.first_column);
    if (begin >= end || args.row_begin >= args.row_end) return;
    args.w = term.b;
    args.x = product_->low + begin * product_->low_stride + term.place;
    args.x_stride = product_->low_stride;
    args.tokens = end - begin;
    args.y = y + begin * y_stride + term.first_column;
    args.y_stride = y_stride;
    args.accumulate = true;
    args.scratch = scratch;
    kernels_[number](args);
  });
}

}  // namespace ktx::runtime

// embed_ngrams: rows of a table that hashes of the last tokens' ids choose.
#include <algorithm>
#include <array>
#include <vector>

#include "kernels/embed/embed.h"
#include "kernels/embed/ngram_rows.h"
#include "lib/runtime/cpu/ops/cpu_ops.h"
#include "lib/runtime/cpu/ops/row_step.h"
#include "lib/runtime/cpu/ops/small_weight.h"
#include "lib/runtime/cpu/ops/state_step.h"

namespace ktx::runtime {
namespace {

// One thread makes the numbers of rows, and the states: a few operations each. Items are tokens:
// of a table that is mapped and larger than the memory their rows come from the disk, all threads'
// at once.
class EmbedNgramsStep final : public StateStep {
 public:
  Status bind(const BindContext& context) {
    const BoundView y = context.output(0);
    point_to(y, args_.y, y_stride_);
    const BoundWeight table = KTX_TRY(context.weight(0));
    KTX_TRY(require_layout(context.family(), table));
    args_.table = table.matrix;
    args_.y_stride = table.matrix.cols;
    attrs_ = context.attrs<EmbedNgramsAttrs>();
    const SmallWeight digits = KTX_TRY(SmallWeight::make(KTX_TRY(context.weight(1))));
    hash_ = kernels::NgramHash(attrs_, digits.data());
    if (!hash_.fits(table.matrix.rows)) {
      return Error{"a hash of n-grams whose rows are outside of their table"};
    }
    keep_state(context, attrs_);
    run_ = KTX_TRY(kernels::find_embed(context.family(), context.isa));
    return {};
  }

  StepWork begin(const Batch& batch) override {
    rows_.resize(std::max(rows_.size(), static_cast<size_t>(batch.tokens * attrs_.rows())));
    for (int64_t row = 0; row < batch.tokens;) {
      const int64_t first = row;
      const int32_t sequence = batch.sequence[first];
      while (row < batch.tokens && batch.sequence[row] == sequence) ++row;
      if (!number_rows(batch, first, row, batch.states[sequence])) {
        return {0, 0, "a token id is below 0, which tables of n-grams do not know"};
      }
    }
    return {batch.tokens, batch.tokens * attrs_.rows() * args_.table.row_bytes, nullptr};
  }

  void run(int64_t token, std::byte*) override {
    kernels::EmbedArgs args = args_;
    args.ids = rows_.data() + token * attrs_.rows();
    args.y += token * y_stride_;
    args.token_end = attrs_.rows();
    run_(args);
  }

 private:
  using Ids = std::array<int32_t, kMaxNgramSize>;

  // Numbers the rows of tokens [first, end), which belong to one text of the pass.
  bool number_rows(const Batch& batch, int64_t first, int64_t end, const SequenceState& states) {
    const int64_t size = attrs_.size;
    Ids last;  // of the token before, and before that
    for (int64_t i = 0; i + 1 < size; ++i) {
      last[i] = states.in != nullptr ? id_of(states.in[offset_ + i]) : attrs_.end;
    }
    auto out = states.outs.begin();
    for (int64_t t = first; t < end; ++t) {
      if (batch.ids[t] < 0) return false;
      Ids seen;
      seen[0] = batch.ids[t];
      for (int64_t i = 1; i < size; ++i) {
        const bool ended = i > 1 && seen[i - 1] == attrs_.end;
        seen[i] = ended ? attrs_.end : last[i - 1];
      }
      hash_.rows(std::span(seen).first(static_cast<size_t>(size)), &rows_[t * attrs_.rows()]);
      std::copy_backward(last.begin(), last.begin() + size - 2, last.begin() + size - 1);
      last[0] = batch.ids[t];
      for (; out != states.outs.end() && out->tokens == t - first + 1; ++out) {
        for (int64_t i = 0; i + 1 < size; ++i) {
          out->data[offset_ + i] = static_cast<float>(last[i]);
        }
      }
    }
    return true;
  }

  // Takes any floats, as a saved session may hold any bytes.
  int32_t id_of(float x) const {
    return x >= 0 && x < 0x1p24F ? static_cast<int32_t>(x) : attrs_.end;
  }

  void run_part(const StateRun&, int64_t) override {}

  kernels::EmbedArgs args_;  // y: of a token, a row after the other
  int64_t y_stride_ = 0;
  EmbedNgramsAttrs attrs_;
  kernels::NgramHash hash_;
  std::vector<int32_t> rows_;  // of each token
  kernels::EmbedFn run_ = nullptr;
};

}  // namespace

const MakeStep make_embed_ngrams = make_step<EmbedNgramsStep>;

}  // namespace ktx::runtime

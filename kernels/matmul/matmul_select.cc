// Picks a product from matmul.def, and the sizes that callers need.
#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "kernels/built_for.h"
#include "kernels/matmul/float_panel_scratch.h"
#include "kernels/matmul/float_scratch.h"
#include "kernels/matmul/matmul_selectors.h"
#include "kernels/matmul/panel_scratch.h"
#include "lib/formats/int8_form.h"
#include "lib/formats/layout_size.h"

namespace ktx::kernels {

namespace {

template <class Fn>
struct SelectorRow {
  std::string_view family;
  Isa isa;
  int64_t least;  // tokens
  int64_t most;
  Fn (*select)(DType);
  std::string_view name;
};

constexpr SelectorRow<MatmulFn> kMatmul[] = {
#define KTX_MATMUL(family, isa, least, most, selector) \
  KTX_BUILT(isa, {family, Isa::isa, least, most, selector, #selector}, )
#define KTX_MATMUL_TRANSPOSED(family, isa, selector)
#include "kernels/matmul/matmul.def"
#undef KTX_MATMUL_TRANSPOSED
#undef KTX_MATMUL
};

constexpr SelectorRow<MatmulTransposedFn> kTransposed[] = {
#define KTX_MATMUL(family, isa, least, most, selector)
#define KTX_MATMUL_TRANSPOSED(family, isa, selector) \
  KTX_BUILT(isa, {family, Isa::isa, 1, kAnyTokens, selector, #selector}, )
#include "kernels/matmul/matmul.def"
#undef KTX_MATMUL_TRANSPOSED
#undef KTX_MATMUL
};

// The rows for the dtype of the strongest set among those up to `isa`, by rising tokens.
template <class Fn>
Result<std::vector<const SelectorRow<Fn>*>> pick(std::span<const SelectorRow<Fn>> rows,
                                                 std::string_view family, DType dtype, Isa isa) {
  std::vector<const SelectorRow<Fn>*> best;
  bool known = false;
  for (const SelectorRow<Fn>& row : rows) {
    if (row.family != family) continue;
    known = true;
    if (row.isa > isa || !row.select(dtype)) continue;
    if (!best.empty() && row.isa < best[0]->isa) continue;
    if (!best.empty() && row.isa > best[0]->isa) best.clear();
    best.push_back(&row);
  }
  std::ranges::sort(best, {}, [](const SelectorRow<Fn>* row) { return row->least; });
  if (!best.empty()) return best;
  if (known) return Error{fmt::format("kernel '{}' takes no {} weights", family, name(dtype))};
  return Error{
      fmt::format("no product kernel '{}'; the plan is from another version of ktx", family)};
}

int64_t round_up(int64_t value, int64_t step) {
  return (value + step - 1) / step * step;
}

}  // namespace

MatmulKernel::MatmulKernel(std::span<const Range> ranges) : count_(ranges.size()) {
  KTX_ASSERT(count_ > 0 && count_ <= kMostRanges);
  std::ranges::copy(ranges, ranges_.begin());
  int64_t next = 1;
  for (const Range& range : ranges) {
    KTX_ASSERT(range.run && range.least == next && range.most >= next);
    next = range.most == kAnyTokens ? kAnyTokens : range.most + 1;
  }
  KTX_ASSERT(ranges.back().most == kAnyTokens);
}

MatmulFn MatmulKernel::of(int64_t tokens) const {
  size_t i = 0;
  while (ranges_[i].most < tokens) ++i;
  return ranges_[i].run;
}

void MatmulKernel::operator()(const MatmulArgs& args) const {
  if (args.tokens > 0 && args.row_begin < args.row_end) of(args.tokens)(args);
}

std::string MatmulKernel::describe() const {
  std::string text;
  for (const Range& range : ranges()) {
    if (!text.empty()) text += ", ";
    text += range.most == kAnyTokens    ? fmt::format("{}-: ", range.least)
            : range.most == range.least ? fmt::format("{}: ", range.least)
                                        : fmt::format("{}-{}: ", range.least, range.most);
    text += range.name;
  }
  return text;
}

Result<MatmulKernel> find_matmul(std::string_view family, DType dtype, Isa isa) {
  std::vector<MatmulKernel::Range> ranges;
  for (const auto* row : KTX_TRY(pick<MatmulFn>(kMatmul, family, dtype, isa))) {
    ranges.push_back({row->least, row->most, row->select(dtype), row->name});
  }
  return MatmulKernel(ranges);
}

Result<MatmulTransposedFn> find_matmul_transposed(std::string_view family, DType dtype, Isa isa) {
  const auto rows = KTX_TRY(pick<MatmulTransposedFn>(kTransposed, family, dtype, isa));
  return rows[0]->select(dtype);
}

bool matmul_q8_takes(DType dtype) {
  return int8_form(dtype).has_value();
}

int64_t matmul_chunk_rows(const WeightMatrix& w, int64_t tokens) {
  if (!matmul_q8_takes(w.dtype) && in_panels(w.layout)) {
    if (tokens > 1) return kFloatPanels * kPanelRows;
    return w.rows < 1024 ? 2 * kPanelRows : 4 * kPanelRows;
  }
  if (in_panels(w.layout) && tokens > kStreamTokens) return kChunkPanels * kPanelRows;
  if (!matmul_q8_takes(w.dtype)) {
    // Also small matrices, a router of 1 MB, are to be shared by all threads.
    if (tokens > kMostDirectTokens) return kFloatRows;
    const int64_t rows = (32 << 10) / (w.row_bytes > 0 ? w.row_bytes : 1) / 8 * 8;
    return rows < 8 ? 8 : rows < 256 ? rows : 256;
  }
  const int64_t target_bytes = tokens < 4 ? 64 << 10 : 16 << 10;
  const int64_t rows = round_up(target_bytes / (w.row_bytes > 0 ? w.row_bytes : 1) + 1, 16);
  return rows < 256 ? rows : 256;
}

int64_t matmul_chunk_tokens(const WeightMatrix& w, int64_t tokens, ValueType input) {
  const bool floats = !matmul_q8_takes(w.dtype);
  if (!in_panels(w.layout) && !floats) return tokens;
  const int64_t most = floats ? kFloatPanelTokens : kChunkTokens;
  if (tokens <= most) return tokens;
  if (input == ValueType::BF16) return 4 * kBf16TileTokens;
  const int64_t parts = (tokens + most - 1) / most;
  return (tokens + parts - 1) / parts;
}

void prefetch_rows(const WeightMatrix& w, int64_t row) {
  constexpr int kLines = 32;
  for (int line = 0; line < kLines; ++line) {
    __builtin_prefetch(w.data + row * w.row_bytes + 64 * line);
  }
}

// For weights in rows: 16 of them in int8 form (24 bytes a column) and four on their way there (6),
// or FloatScratch, or the activations of four tokens as floats (16). For panels: PanelScratch, two
// tokens' sums of 16 activations and their dot products with a panel (5), or the 16 rows of a panel
// (17 bytes a column) and then what rows need; or the activations of 64 tokens as BF16 (128).
int64_t matmul_scratch_bytes(int64_t cols) {
  const int64_t padded = round_up(cols, 256);
  const int64_t rows = 49 * padded + 4096, floats = 17 * padded + 64 + FloatScratch::kBytes;
  static_assert(FloatPanelScratch::kBytes <= FloatScratch::kBytes);
  const int64_t most = rows > floats ? rows : floats, tiles = kBf16TileTokens * 2 * padded;
  const int64_t panels = tiles > PanelScratch::kBytes ? tiles : PanelScratch::kBytes;
  return most > panels ? most : panels;
}

}  // namespace ktx::kernels

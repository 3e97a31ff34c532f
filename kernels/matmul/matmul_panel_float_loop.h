// Float weights in panels of 16 rows (panel16_floats.h) times float activations, over a
// vector policy and a form (float_panel_forms.h).
//
// A lane is a row and an output has one sum, which takes the columns in rising order:
// tokens, ranges and instruction sets change no bit. Weights go straight from the panels
// into registers. One token meets four panels at a time, over all columns. More tokens
// meet 16 panels, a stretch of columns at a time, so that its weights stay in the second
// cache while all tokens pass, and the activations of a tile of tokens in the first:
//
//   F16, AVX-512, a column:  4 panels x 6 tokens = 4 conversions, 6 broadcasts, 24 FMAs
//
// Meanwhile the next stretch of weights is asked for.
//
// Included by matmul_panel_float_*_<isa>.cc only.
#pragma once

#include "kernels/matmul/float_panel_forms.h"
#include "kernels/matmul/float_panel_scratch.h"
#include "kernels/matmul/matmul_store.h"
#include "kernels/simd/flush_subnormals.h"
#include "lib/formats/layout_size.h"

namespace ktx::kernels {
namespace {

// f(LanePart<0>()), ... f(LanePart<n - 1>()).
template <int kValue>
struct LanePart {
  static constexpr int value = kValue;
};
template <int n, int i = 0, class Fn>
KTX_INLINE void each_lane_part(Fn f) {
  if constexpr (i < n) {
    f(LanePart<i>());
    each_lane_part<n, i + 1>(f);
  }
}

template <class Form>
constexpr int64_t kStretchActs = kFloatPanelStretch /
                                 static_cast<int64_t>(sizeof(typename Form::Elem));

// What is needed next, asked for while a tile multiplies, a step every four units: a burst
// would find memory busy, and the multiplier idle.
struct LinesAhead {
  const uint8_t* weights;               // a line after the other
  const std::byte* const* activations;  // a line each

  __attribute__((always_inline)) void step() {
    __builtin_prefetch(weights, 0, 2);
    __builtin_prefetch(*activations++);
    weights += 64;
  }
};
struct NothingAhead {
  __attribute__((always_inline)) void step() {}
};

// A register tile: panels that are `panel_bytes` apart times tokens whose activations are
// kStretchActs apart, over `units`. The sums of token t and panel r are at
// sums + t * stride + 16 * r.
template <class V, class Form, int kPanels, int kTokens, class Ahead>
void lane_tile(const uint8_t* w, int64_t panel_bytes, const typename Form::Elem* x, int64_t units,
               Ahead ahead, float* sums, int64_t stride) {
  using Math = typename Form::Math;
  typename V::F sum[kTokens][kPanels];
  KTX_UNROLL
  for (int t = 0; t < kTokens; ++t) {
    KTX_UNROLL
    for (int r = 0; r < kPanels; ++r) sum[t][r] = V::load(sums + t * stride + 16 * r);
  }
  const auto unit = [&]() __attribute__((always_inline)) {
    each_lane_part<Form::kParts>([&](auto p) __attribute__((always_inline)) {
      typename Math::W weights[kPanels];
      KTX_UNROLL
      for (int r = 0; r < kPanels; ++r) {
        weights[r] = Form::template part<p.value>(w + r * panel_bytes);
      }
      KTX_UNROLL
      for (int t = 0; t < kTokens; ++t) {
        const typename Math::Act act = Form::template act<p.value>(x + t * kStretchActs<Form>);
        KTX_UNROLL
        for (int r = 0; r < kPanels; ++r) sum[t][r] = Math::fma(weights[r], act, sum[t][r]);
      }
    });
    w += Form::kBytes;
    x += Form::kActs;
  };
  int64_t u = 0;
  for (; u + 4 <= units; u += 4) {
    ahead.step();
    unit();
    unit();
    unit();
    unit();
  }
  for (; u < units; ++u) unit();
  KTX_UNROLL
  for (int t = 0; t < kTokens; ++t) {
    KTX_UNROLL
    for (int r = 0; r < kPanels; ++r) V::store(sums + t * stride + 16 * r, sum[t][r]);
  }
}

template <class V, class Form, int kPanels, int kTokens, class Ahead>
void tile_of_tokens(int64_t tokens, const uint8_t* w, int64_t panel_bytes,
                    const typename Form::Elem* x, int64_t units, Ahead ahead, float* sums,
                    int64_t stride) {
  if (tokens == kTokens) {
    return lane_tile<V, Form, kPanels, kTokens>(w, panel_bytes, x, units, ahead, sums, stride);
  }
  if constexpr (kTokens > 1) {
    tile_of_tokens<V, Form, kPanels, kTokens - 1>(tokens, w, panel_bytes, x, units, ahead, sums,
                                                  stride);
  }
}

// Columns [k, k + count) of panels from p on, k whole units.
template <class Form>
struct PanelStretch {
  const uint8_t* w;
  int64_t panel_bytes;
  int64_t units;       // whole ones
  bool lonely_column;  // after them

  PanelStretch(const MatmulArgs& a, int64_t p, int64_t k, int64_t count)
      : w(reinterpret_cast<const uint8_t*>(a.w.data) + p * kPanelRows * a.w.row_bytes +
          k / Form::kCols * Form::kBytes),
        panel_bytes(kPanelRows * a.w.row_bytes),
        units(count / Form::kCols),
        lonely_column(count % Form::kCols != 0) {}
};

// `panels` panels from number `first` of a stretch on times a tile of tokens, whose
// activations are in x; the sums of token t and panel r are at sums + t * stride + 16 * r.
// ahead(first): what is asked for meanwhile.
template <class V, class Form, int kPanels, int kTokens, class Ahead>
void tile_of_panels(const PanelStretch<Form>& stretch, int64_t first, int64_t panels,
                    int64_t tokens, const typename Form::Elem* x, float* sums, int64_t stride,
                    const Ahead& ahead) {
  for (; panels >= kPanels; first += kPanels, panels -= kPanels) {
    const uint8_t* w = stretch.w + first * stretch.panel_bytes;
    float* at = sums + first * kPanelRows;
    tile_of_tokens<V, Form, kPanels, kTokens>(tokens, w, stretch.panel_bytes, x, stretch.units,
                                              ahead(first), at, stride);
    if constexpr (Form::kCols == 2) {
      if (!stretch.lonely_column) continue;
      alignas(64) uint8_t unit[kPanels][Form::kBytes] = {};
      for (int r = 0; r < kPanels; ++r) {
        const uint8_t* column = w + r * stretch.panel_bytes + stretch.units * Form::kBytes;
        for (int row = 0; row < kPanelRows; ++row) {
          __builtin_memcpy(unit[r] + 4 * row, column + 2 * row, 2);
        }
      }
      tile_of_tokens<V, Form, kPanels, kTokens>(tokens, unit[0], Form::kBytes,
                                                x + stretch.units * Form::kActs, 1, NothingAhead(),
                                                at, stride);
    }
  }
  if constexpr (kPanels > 1) {
    if (panels > 0) {
      tile_of_panels<V, Form, kPanels / 2, kTokens>(stretch, first, panels, tokens, x, sums, stride,
                                                    ahead);
    }
  }
}

// One token, all columns at once.
template <class V, class Form>
void one_token(const MatmulArgs& a) {
  const float* row = a.x + x_row(a, 0) * a.x_stride;
  const typename Form::Elem* x;
  if constexpr (Form::kPlain) {
    x = row;
  } else {
    auto* converted = reinterpret_cast<typename Form::Elem*>(a.scratch);
    Form::activations(row, a.w.cols, converted);
    x = converted;
  }
  constexpr int64_t kPanels = V::kOneTokenPanels;
  const int64_t end = (a.row_end + kPanelRows - 1) / kPanelRows;
  for (int64_t p = a.row_begin / kPanelRows; p < end; p += kPanels) {
    const int64_t panels = end - p < kPanels ? end - p : kPanels;
    alignas(64) float sums[kPanels * kPanelRows] = {};
    tile_of_panels<V, Form, kPanels, 1>(PanelStretch<Form>(a, p, 0, a.w.cols), 0, panels, 1, x,
                                        sums, 0, [](int64_t) { return NothingAhead(); });
    for (int64_t r = 0; r < panels; ++r) {
      store_rows<V>(a, 0, p + r, V::load(sums + r * kPanelRows));
    }
  }
}

// Where the weights after a stretch of panels [p, p + panels) begin: its next columns, or
// the next panels; nothing new at the end.
template <class Form>
const uint8_t* weights_after(const MatmulArgs& a, const PanelStretch<Form>& stretch, int64_t p,
                             int64_t panels, int64_t k, int64_t count) {
  if (k + count < a.w.cols) return stretch.w + stretch.units * Form::kBytes;
  if ((p + panels) * kPanelRows >= a.row_end) return stretch.w;
  return PanelStretch<Form>(a, p + panels, 0, count).w;
}

// Lists the lines of columns [k, k + count) of tokens [i, i + tokens) and fills the list up
// to a multiple of `steps` > 0. Returns its length, which is at most FloatPanelScratch::kLines.
static inline int64_t list_activations(const MatmulArgs& a, int64_t i, int64_t tokens, int64_t k,
                                       int64_t count, int64_t steps, const std::byte** lines) {
  int64_t n = 0;
  for (int64_t t = 0; t < tokens; ++t) {
    const auto* x = reinterpret_cast<const std::byte*>(a.x + x_row(a, i + t) * a.x_stride + k);
    for (int64_t at = 0; at < count * 4; at += 64) lines[n++] = x + at;
  }
  const std::byte* last = n > 0 ? lines[n - 1] : nullptr;  // asking for it does no harm
  const int64_t whole = n > 0 ? (n + steps - 1) / steps * steps : steps;
  while (n < whole) lines[n++] = last;
  return n;
}

// At most kFloatPanels panels from p on times at most kFloatPanelTokens tokens from i on.
template <class V, class Form>
void float_panel_block(const MatmulArgs& a, int64_t p, int64_t panels, int64_t i, int64_t tokens) {
  constexpr int64_t kStride = kFloatPanels * kPanelRows;
  constexpr int64_t kStretch = kStretchActs<Form> / Form::kActs * Form::kCols;
  const FloatPanelScratch scratch(a.scratch);
  auto* x = reinterpret_cast<typename Form::Elem*>(scratch.activations);
  const int64_t tiles = (tokens + V::kLaneTokens - 1) / V::kLaneTokens;
  __builtin_memset(scratch.sums, 0, static_cast<size_t>(tokens * kStride) * sizeof(float));
  for (int64_t k = 0; k < a.w.cols; k += kStretch) {
    const int64_t count = a.w.cols - k < kStretch ? a.w.cols - k : kStretch;
    const PanelStretch<Form> stretch(a, p, k, count);
    const uint8_t* after = weights_after(a, stretch, p, panels, k, count);
    const int64_t steps = stretch.units / 4 + 1, bytes = stretch.units * Form::kBytes;
    for (int64_t tile = 0; tile < tiles; ++tile) {
      // Tiles of almost the same size: 32 tokens are 6 + 5 + 5 + 6 + 5 + 5.
      const int64_t begin = tokens * tile / tiles, end = tokens * (tile + 1) / tiles;
      for (int64_t t = 0; t < end - begin; ++t) {
        Form::activations(a.x + x_row(a, i + begin + t) * a.x_stride + k, count,
                          x + t * kStretchActs<Form>);
      }
      const int64_t next = tile + 1 < tiles ? tokens * (tile + 2) / tiles - end : 0;
      const int64_t lines = list_activations(a, i + end, next, k, count, steps, scratch.lines);
      const auto ahead = [&](int64_t first) {
        // Each tile prefetches a piece of the weights, each group of panels one of the activations.
        const int64_t at = tile * steps * 64, panel = bytes > 0 ? at / bytes : 0;
        const int64_t line = first / V::kLanePanels * steps;
        return LinesAhead{panel < V::kLanePanels && bytes > 0
                              ? after + (first + panel) * stretch.panel_bytes + at % bytes
                              : stretch.w,
                          scratch.lines + (line < lines ? line : 0)};
      };
      tile_of_panels<V, Form, V::kLanePanels, V::kLaneTokens>(
          stretch, 0, panels, end - begin, x, scratch.sums + begin * kStride, kStride, ahead);
    }
  }
  for (int64_t t = 0; t < tokens; ++t) {
    for (int64_t r = 0; r < panels; ++r) {
      store_rows<V>(a, i + t, p + r, V::load(scratch.sums + t * kStride + r * kPanelRows));
    }
  }
}

// ---- kernels

template <class V, class Form>
void float_panel_gemv(const MatmulArgs& a) {
  KTX_ASSERT(a.tokens == 1);
  const FlushSubnormals flush(Form::kFlush);
  one_token<V, Form>(a);
}

template <class V, class Form>
void float_panel_gemm(const MatmulArgs& a) {
  const FlushSubnormals flush(Form::kFlush);
  const int64_t end = (a.row_end + kPanelRows - 1) / kPanelRows;
  for (int64_t i = 0; i < a.tokens; i += kFloatPanelTokens) {
    const int64_t tokens = a.tokens - i < kFloatPanelTokens ? a.tokens - i : kFloatPanelTokens;
    for (int64_t p = a.row_begin / kPanelRows; p < end; p += kFloatPanels) {
      const int64_t panels = end - p < kFloatPanels ? end - p : kFloatPanels;
      float_panel_block<V, Form>(a, p, panels, i, tokens);
    }
  }
}

// The kernels of a dtype with its weights as they are; null for other dtypes.
template <class V>
MatmulFn exact_panel_gemv(DType dtype) {
  if (dtype == DType::F32) return float_panel_gemv<V, PanelForm<V, DType::F32>>;
  if (dtype == DType::F16) return float_panel_gemv<V, PanelForm<V, DType::F16>>;
  if (dtype == DType::BF16) return float_panel_gemv<V, PanelForm<V, DType::BF16>>;
  return nullptr;
}
template <class V>
MatmulFn exact_panel_gemm(DType dtype) {
  if (dtype == DType::F32) return float_panel_gemm<V, PanelForm<V, DType::F32>>;
  if (dtype == DType::F16) return float_panel_gemm<V, PanelForm<V, DType::F16>>;
  if (dtype == DType::BF16) return float_panel_gemm<V, PanelForm<V, DType::BF16>>;
  return nullptr;
}

}  // namespace
}  // namespace ktx::kernels

#include "kernels/matmul/experts.h"

#include <algorithm>

namespace ktx::kernels {
namespace {

// Values of `up` that wait in scratch for their `gate`, of at most so many pairs.
constexpr int64_t kUpFloats = 192 * 256, kPairs = 192;
static_assert(kUpFloats >= kExpertsMaxRows);
constexpr int64_t kFloat = static_cast<int64_t>(sizeof(float));
constexpr int64_t kUpBytes = kUpFloats * kFloat;

// Outputs of an item of down while it runs: 1024 tokens times 128 rows.
constexpr int64_t kDownBytes = 512 << 10;

const std::byte* rows_of(const ExpertMatrices& w, int32_t expert, int64_t row_begin) {
  return w.data(expert) + row_begin * w.first.row_bytes;
}

const float* bias_of(const float* bias, int32_t expert, int64_t rows) {
  return bias ? bias + expert * rows : nullptr;
}

// y = y * factor + bias over a row of a product that was computed without its bias.
void apply_factor(float* y, int64_t rows, float factor, const float* bias) {
  for (int64_t n = 0; n < rows; ++n) y[n] = y[n] * factor + (bias ? bias[n] : 0);
}

// The next expert with pairs, or `expert` when it is the last.
int32_t next_active(const ExpertsArgs& experts, int32_t expert) {
  for (int32_t next = expert + 1; next < experts.experts; ++next) {
    if (experts.offsets[next + 1] > experts.offsets[next]) return next;
  }
  return expert;
}

}  // namespace

void experts_gate_up(const ExpertsGateUpArgs& a, int32_t expert, int64_t row_begin,
                     int64_t row_end) {
  float* up = reinterpret_cast<float*>(a.experts.scratch);
  const int64_t rows = row_end - row_begin;
  MatmulArgs product;
  product.x = a.x;
  product.x_stride = a.x_stride;
  product.xq = a.xq;
  product.xq_stride = a.xq_stride;
  product.x_div = a.experts.top_k;
  product.row_begin = row_begin;
  product.row_end = row_end;
  product.scratch = a.experts.scratch + kUpBytes;
  const int64_t end = a.experts.offsets[expert + 1];
  const float* gate_bias = bias_of(a.gate_bias, expert, a.gate.first.rows);
  const float* up_bias = bias_of(a.up_bias, expert, a.up.first.rows);
  const bool gateless = a.gate.first.data == a.up.first.data;
  const int64_t most = std::min(kPairs, kUpFloats / std::max<int64_t>(rows, 1));
  for (int64_t first = a.experts.offsets[expert]; first < end; first += most) {
    product.tokens = std::min(end - first, most);
    product.index = a.experts.order + first;
    product.w = a.gate.of(expert);
    if (gateless) {
      product.next = a.next;
    } else {
      prefetch_rows(a.up.of(expert), row_begin);
      product.next =
          a.up.first.dtype == a.gate.first.dtype ? rows_of(a.up, expert, row_begin) : nullptr;
    }
    product.bias = a.gate_factors ? nullptr : gate_bias;
    product.y = a.h;
    product.y_stride = a.h_stride;
    (*a.gate_kernel)(product);
    if (!gateless) {
      product.w = a.up.of(expert);
      product.next = a.up.first.dtype == a.gate.first.dtype ? a.next : nullptr;
      product.bias = a.up_factors ? nullptr : up_bias;
      product.compact_y = true;
      product.x_kept = a.up_kernel->of(product.tokens) == a.gate_kernel->of(product.tokens);
      product.y = up;
      product.y_stride = rows;
      (*a.up_kernel)(product);
      product.compact_y = product.x_kept = false;
    }
    RowsArgs glu;
    glu.attrs = a.glu;
    glu.width = rows;
    glu.token_end = 1;
    for (int64_t i = 0; i < product.tokens; ++i) {
      float* h = a.h + product.index[i] * a.h_stride + row_begin;
      glu.in[0].data = glu.y = h;
      glu.in[1].data = gateless ? h : up + i * rows;
      if (a.gate_factors) {
        apply_factor(h, rows, a.gate_factors[expert], gate_bias ? gate_bias + row_begin : nullptr);
      }
      if (a.up_factors) {
        apply_factor(up + i * rows, rows, a.up_factors[expert],
                     up_bias ? up_bias + row_begin : nullptr);
      }
      a.glu_fn(glu);
    }
  }
}

void experts_down(const ExpertsDownArgs& a, int64_t row_begin, int64_t row_end) {
  // Outputs stand side by side in scratch while all experts add to them, if they fit.
  // (Rows of y are often a power of two apart, so that few of them stay in a cache.)
  const int64_t rows = row_end - row_begin, tokens = a.experts.tokens;
  const bool gathered = tokens > 1 && tokens * rows * kFloat <= kDownBytes && !a.by_pair;
  float* y = gathered ? reinterpret_cast<float*>(a.experts.scratch) : a.y + row_begin;
  const int64_t y_stride = gathered ? rows : a.y_stride;
  for (int64_t t = 0; t < tokens && !a.by_pair; ++t) {
    if (!a.accumulate) {
      std::fill_n(y + t * y_stride, rows, 0.0f);
    } else if (gathered) {
      std::copy_n(a.y + t * a.y_stride + row_begin, rows, y + t * y_stride);
    }
  }
  MatmulArgs product;
  product.x = a.h;
  product.x_stride = a.h_stride;
  product.xq = a.hq;
  product.xq_stride = a.hq_stride;
  product.y_div = a.by_pair ? 1 : a.experts.top_k;
  product.y = y;
  product.y_stride = y_stride;
  product.token_scale = a.weights;
  product.accumulate = !a.by_pair;
  product.row_end = rows;
  product.scratch = a.experts.scratch + kDownBytes;
  for (int32_t expert = 0; expert < a.experts.experts; ++expert) {
    product.tokens = a.experts.offsets[expert + 1] - a.experts.offsets[expert];
    if (product.tokens == 0) continue;
    product.index = a.experts.order + a.experts.offsets[expert];
    product.w = a.down.of(expert);
    product.w.data += row_begin * a.down.first.row_bytes;
    product.w.rows -= row_begin;
    product.bias = bias_of(a.bias, expert, a.down.first.rows);
    if (product.bias) product.bias += row_begin;
    const int32_t next = next_active(a.experts, expert);
    product.next = rows_of(a.down, next, row_begin);
    prefetch_rows(a.down.of(next), row_begin);
    (*a.down_kernel)(product);
  }
  for (int64_t t = 0; gathered && t < tokens; ++t) {
    std::copy_n(y + t * y_stride, rows, a.y + t * a.y_stride + row_begin);
  }
}

int64_t experts_scratch_bytes(int64_t cols) {
  return std::max(kUpBytes, kDownBytes) + matmul_scratch_bytes(cols);
}

}  // namespace ktx::kernels

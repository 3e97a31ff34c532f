#include "kernels/matmul/experts.h"

namespace ktx::kernels {
namespace {

// Pairs whose `up` values wait in scratch for their `gate`.
constexpr int64_t kPairs = 64;
constexpr int64_t kUpBytes = kPairs * kExpertsMaxRows * static_cast<int64_t>(sizeof(float));

WeightMatrix expert_matrix(WeightMatrix w, int64_t expert_bytes, int32_t expert) {
  w.data += expert * expert_bytes;
  return w;
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
  for (int64_t first = a.experts.offsets[expert]; first < end; first += kPairs) {
    product.tokens = end - first < kPairs ? end - first : kPairs;
    product.index = a.experts.order + first;
    product.w = expert_matrix(a.gate, a.gate_expert_bytes, expert);
    prefetch_rows(expert_matrix(a.up, a.up_expert_bytes, expert), row_begin);
    product.y = a.h;
    product.y_stride = a.h_stride;
    a.gate_fn(product);
    product.w = expert_matrix(a.up, a.up_expert_bytes, expert);
    product.compact_y = true;
    product.y = up;
    product.y_stride = rows;
    a.up_fn(product);
    product.compact_y = false;
    for (int64_t i = 0; i < product.tokens; ++i) {
      float* h = a.h + product.index[i] * a.h_stride + row_begin;
      SwigluArgs swiglu;
      swiglu.gate = h;
      swiglu.up = up + i * rows;
      swiglu.y = h;
      swiglu.width = rows;
      swiglu.token_end = 1;
      a.swiglu_fn(swiglu);
    }
  }
}

void experts_down(const ExpertsDownArgs& a, int64_t row_begin, int64_t row_end) {
  if (!a.accumulate) {
    for (int64_t t = 0; t < a.experts.tokens; ++t) {
      for (int64_t n = row_begin; n < row_end; ++n) a.y[t * a.y_stride + n] = 0;
    }
  }
  MatmulArgs product;
  product.x = a.h;
  product.x_stride = a.h_stride;
  product.xq = a.hq;
  product.xq_stride = a.hq_stride;
  product.y_div = a.experts.top_k;
  product.y = a.y;
  product.y_stride = a.y_stride;
  product.token_scale = a.weights;
  product.accumulate = true;
  product.row_begin = row_begin;
  product.row_end = row_end;
  product.scratch = a.experts.scratch;
  for (int32_t expert = 0; expert < a.experts.experts; ++expert) {
    product.tokens = a.experts.offsets[expert + 1] - a.experts.offsets[expert];
    if (product.tokens == 0) continue;
    product.index = a.experts.order + a.experts.offsets[expert];
    product.w = expert_matrix(a.down, a.down_expert_bytes, expert);
    const int32_t next = next_active(a.experts, expert);
    prefetch_rows(expert_matrix(a.down, a.down_expert_bytes, next), row_begin);
    a.down_fn(product);
  }
}

int64_t experts_scratch_bytes(int64_t cols) {
  return kUpBytes + matmul_scratch_bytes(cols);
}

}  // namespace ktx::kernels

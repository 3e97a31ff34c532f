#include "kernels/gpu/gpu_ranges.h"

#include <algorithm>

#include "kernels/gpu/gpu_limits.h"
#include "kernels/matmul/marlin_layout.h"
#include "lib/formats/layout.h"

namespace ktx::kernels::gpu_ranges {
namespace {

constexpr RowRange kNoRows = {1, 0};
constexpr RowRange kAll = {};
constexpr RowRange kOneRow = {1, 1};
constexpr RowRange kRouterRange = {1, 8};  // each row reads the router's weights again
constexpr RowRange kSkinnyRange = {2, kSkinnyRows};
constexpr int64_t kLeastGemmRows = 17;
constexpr RowRange kWideRange = {33, 2047};  // cuBLAS has more (cublas_products.def)

constexpr int64_t ceil_div(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}

bool is_marlin(const GpuWeight& w) {
  return w.layout == Layout::Marlin && marlin_takes(w.dtype);
}
bool all_marlin(const GpuForm& form) {
  return std::all_of(form.weights.begin(), form.weights.end(), is_marlin);
}

bool gemv_fits(const GpuWeight& w, int64_t x_rows, const GpuMachine& machine) {
  return marlin_gemv_fits(w.dtype, w.cols, x_rows, machine.shared_memory);
}
bool all_gemv(const GpuForm& form, const GpuMachine& machine) {
  return all_marlin(form) &&
         std::all_of(form.weights.begin(), form.weights.end(),
                     [&](const GpuWeight& w) { return gemv_fits(w, 1, machine); });
}

bool is_experts(const GpuForm& form) {
  return form.op == StepOp::ExpertsGateUp || form.op == StepOp::ExpertsDown;
}

// Tokens of which hardly two share an expert.
RowRange few_pairs(const GpuForm& form) {
  return {1, std::max<int64_t>(1, form.experts / (4 * int64_t{form.top_k}))};
}

// From so many pairs to each expert on average.
RowRange pairs_from(const GpuForm& form, int64_t pairs) {
  return {ceil_div(pairs * form.experts, form.top_k), kAnyRows};
}

// Products of one launch: at most kLaunchProducts, of equal columns and at most two formats that go
// together.
bool go_together(const GpuForm& form) {
  if (form.weights.empty() || std::ssize(form.weights) > kLaunchProducts) return false;
  DType other = form.weights[0].dtype;
  for (const GpuWeight& w : form.weights) {
    if (w.cols != form.weights[0].cols) return false;
    if (w.dtype == form.weights[0].dtype) continue;
    if (other != form.weights[0].dtype && other != w.dtype) return false;
    other = w.dtype;
  }
  return marlin_pair(form.weights[0].dtype, other);
}

bool gate_up_goes(const GpuForm& form) {
  return all_marlin(form) && form.weights[0] == form.weights[1] && form.aligned && !form.bias;
}

}  // namespace

RowRange all_rows(const GpuForm&, const GpuMachine&) {
  return kAll;
}

RowRange rows_gemm(const GpuForm& form, const GpuMachine&) {
  const GpuWeight& w = form.weights[0];
  const bool floats = w.dtype == DType::F32 || w.dtype == DType::F16 || w.dtype == DType::BF16;
  return w.layout == Layout::Rows && floats ? kAll : kNoRows;
}

RowRange transposed(const GpuForm& form, const GpuMachine&) {
  return form.transposed && all_marlin(form) ? kAll : kNoRows;
}

RowRange gemv(const GpuForm& form, const GpuMachine& machine) {
  if (form.transposed || !all_gemv(form, machine)) return kNoRows;
  return is_experts(form) ? few_pairs(form) : kOneRow;
}

RowRange skinny_gemm(const GpuForm& form, const GpuMachine&) {
  return all_marlin(form) ? kSkinnyRange : kNoRows;
}

RowRange cublas_gemm(const GpuForm& form, const GpuMachine& machine) {
  if (!all_marlin(form)) return kNoRows;
#define KTX_LIBRARY_FROM(capability, most_rows, tokens) \
  if (machine.sm == (capability) && form.weights[0].rows <= (most_rows)) return {tokens, kAnyRows};
#include "kernels/gpu/cublas_products.def"
#undef KTX_LIBRARY_FROM
  return kNoRows;
}

// Blocks of tokens of 33 and more are filled well enough; the skinny GEMMs have fewer. Experts:
// H200, Qwen3-30B's shape.
RowRange gemm_wgmma(const GpuForm& form, const GpuMachine& machine) {
  if (gemm(form, machine).empty()) return kNoRows;
  if (is_experts(form)) return pairs_from(form, form.op == StepOp::ExpertsDown ? 1 : 6);
  return {kWideRange.least, kAnyRows};
}

// Its blocks take 256 rows of the weight and 64 tokens: below about one for every SM, reading the
// weights from L2 once more for every 16 tokens is quicker.
RowRange gemm(const GpuForm& form, const GpuMachine& machine) {
  const auto fits = [&](const GpuWeight& w) {
    return is_marlin(w) && marlin_gemm_fits(w.dtype, machine.shared_memory);
  };
  if (!std::all_of(form.weights.begin(), form.weights.end(), fits)) return kNoRows;
  if (is_experts(form)) return pairs_from(form, 12);
  constexpr int64_t kTokens = 64;
  const int64_t strips = ceil_div(form.weights[0].rows, 256);
  const int64_t blocks = machine.multiprocessors * 3 / 4;
  const int64_t least = (ceil_div(blocks, strips) - 1) * kTokens + 1;
  return {std::max(least, kLeastGemmRows), kAnyRows};
}

RowRange few_gemm(const GpuForm& form, const GpuMachine&) {
  return all_marlin(form) && !form.transposed ? kAll : kNoRows;
}

RowRange products_gemv(const GpuForm& form, const GpuMachine& machine) {
  return form.aligned && all_gemv(form, machine) && go_together(form) ? kOneRow : kNoRows;
}

RowRange products_skinny_gemm(const GpuForm& form, const GpuMachine&) {
  return form.aligned && all_marlin(form) && go_together(form) ? kSkinnyRange : kNoRows;
}

RowRange products_gemm_wgmma(const GpuForm& form, const GpuMachine&) {
  return form.aligned && all_marlin(form) && go_together(form) ? kWideRange : kNoRows;
}

RowRange gate_up_gemm_wgmma(const GpuForm& form, const GpuMachine&) {
  return gate_up_goes(form) ? kWideRange : kNoRows;
}

RowRange gate_up_gemv(const GpuForm& form, const GpuMachine& machine) {
  return gate_up_goes(form) && all_gemv(form, machine) ? kOneRow : kNoRows;
}

RowRange gate_up_skinny_gemm(const GpuForm& form, const GpuMachine&) {
  return gate_up_goes(form) ? kSkinnyRange : kNoRows;
}

RowRange router_gemv(const GpuForm& form, const GpuMachine&) {
  const GpuWeight& w = form.weights[0];
  const bool goes = w.layout == Layout::Rows && w.dtype == DType::F32 && w.cols % 4 == 0 &&
                    form.aligned && form.norm;
  return goes ? kRouterRange : kNoRows;
}

// form.weights: gate, up, down.
RowRange experts_gemv(const GpuForm& form, const GpuMachine& machine) {
  const GpuWeight &gate = form.weights[0], &down = form.weights[2];
  const bool goes = all_marlin(form) && gate == form.weights[1] && gemv_fits(gate, 1, machine) &&
                    gemv_fits(down, form.top_k, machine) && form.aligned &&
                    form.experts <= kFusedExperts && form.top_k <= kFusedTopK;
  return goes ? few_pairs(form) : kNoRows;
}

// form.weights: gate, up, down of the experts, of the shared one, its score.
RowRange shared_experts_gemv(const GpuForm& form, const GpuMachine& machine) {
  const std::span<const GpuWeight> all(form.weights);
  GpuForm experts = form;
  experts.weights.resize(3);
  const RowRange range = experts_gemv(experts, machine);
  if (range.empty() || form.bias || !form.alike || form.top_k >= kFusedTopK) return kNoRows;
  const bool same = std::ranges::equal(all.first(3), all.subspan(3, 3)) &&
                    gemv_fits(all[2], form.top_k + 1, machine);
  const bool scored = all.size() == 6 || (all[6].layout == Layout::Rows &&
                                          all[6].dtype == DType::F32 && all[6].rows == 1);
  return same && scored ? range : kNoRows;
}

RowRange rope_attention(const GpuForm& form, const GpuMachine& machine) {
  const AttentionAttrs& a = form.attention;
  const int dim = a.value_dim;
  const bool tiles = a.key_dim % 32 == 0 && a.key_dim <= 512 &&
                     (dim == 64 || dim == 128 || dim == 256 || dim == 512);
  const bool goes = form.alike && tiles && !a.value_in_key && form.rope.head_dim == a.key_dim &&
                    form.rope.rotary_begin + form.rope.rotary_dim <= a.key_dim;
  if (!goes) return kNoRows;
  // attention_decode.cu; passes that it does not take are launched step by step.
  const bool few = machine.sm >= 90 && a.key_dim == dim && dim <= 256;
  return few ? RowRange{1, kSkinnyRows} : kOneRow;
}

// Passes with several tokens of a text are launched step by step.
RowRange delta_step(const GpuForm& form, const GpuMachine&) {
  const bool goes = form.alike && !form.bias && gpu_delta_step_takes(form.delta, form.conv);
  return goes ? RowRange{1, kDeltaStepRows} : kNoRows;
}

// form.weights: of absorption, of the values.
RowRange latent_expanded(const GpuForm& form, const GpuMachine&) {
  const AttentionAttrs& a = form.attention;
  const int64_t latent = a.value_dim, rope = a.key_dim - a.value_dim;
  const int64_t head = form.expand.row_count;
  const auto fits = [&](const GpuWeight& w, const MatmulHeadsAttrs& heads, bool rows_are_latent) {
    const int64_t rows = rows_are_latent ? latent : head, cols = rows_are_latent ? head : latent;
    return is_marlin(w) && w.cols == cols && heads.heads == a.heads && heads.row_count == rows &&
           heads.row_begin % 16 == 0 && heads.row_begin + rows <= w.rows;
  };
  const bool goes = a.kv_heads == 1 && a.window == 0 && a.softcap == 0 &&
                    form.absorb.y_stride == a.key_dim && form.expand.x_stride == latent &&
                    form.expand.y_stride == head && (head == 64 || head == 128) && rope <= 64 &&
                    rope % 8 == 0 && latent > 0 && latent % 64 == 0 && form.aligned &&
                    !form.expand.transposed &&
                    fits(form.weights[0], form.absorb, !form.absorb.transposed) &&
                    fits(form.weights[1], form.expand, false);
  return goes ? RowRange{2, kAnyRows} : kNoRows;
}

}  // namespace ktx::kernels::gpu_ranges

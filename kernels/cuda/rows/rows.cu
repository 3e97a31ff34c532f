// rms_norm, rope and the row ops (cuda_rows.h). All of them move bytes; four elements a thread
// where alignment allows.
#include "kernels/cuda/rows/cuda_rows.h"

#include "kernels/cuda/common/cuda_launch.cuh"
#include "kernels/cuda/common/four_floats.cuh"
#include "kernels/cuda/common/mma.cuh"
#include "kernels/rows/row_ops.h"

namespace ktx::kernels {
namespace {

bool by_four(int64_t width, std::initializer_list<int64_t> strides,
             std::initializer_list<const void*> pointers) {
  return width % 4 == 0 && four_floats_at_a_time(pointers, strides);
}

// kWarps warps take one group of one token. The sum of squares: each thread its elements
// in rising order, then the warp, then the warps.
template <int kWarps, bool kFour>
__global__ void __launch_bounds__(256) rms_norm(CudaRmsNormArgs a) {
  begin_kernel();
  __shared__ float partial[8];
  const int part = static_cast<int>(a.width) / a.attrs.groups;
  const int member = static_cast<int>(threadIdx.x) / (32 * kWarps);
  const int thread = static_cast<int>(threadIdx.x) % (32 * kWarps);
  const int64_t item = int64_t{blockIdx.x} * (8 / kWarps) + member;
  const bool live = item < a.tokens * a.attrs.groups;
  const int64_t t = live ? item / a.attrs.groups : 0, g = live ? item % a.attrs.groups : 0;
  const float* x = a.x + t * a.x_stride + g * part;
  const float* residual = a.residual ? a.residual + t * a.residual_stride + g * part : nullptr;
  float* y = a.y + t * a.y_stride + g * part;
  const float* weight = a.weight + g * a.weight_step;
  constexpr int kStep = kFour ? 4 : 1;
  float squares = 0;
  for (int j = kStep * thread; j < part; j += kStep * 32 * kWarps) {
    if constexpr (kFour) {
      const float4 v = load4(x + j);
      squares = fmaf(v.x, v.x, fmaf(v.y, v.y, fmaf(v.z, v.z, fmaf(v.w, v.w, squares))));
    } else {
      squares = fmaf(x[j], x[j], squares);
    }
  }
  squares = warp_sum(squares);
  if constexpr (kWarps > 1) {
    if (thread % 32 == 0) partial[thread / 32] = squares;
    __syncthreads();
    squares = 0;
    for (int w = 0; w < kWarps; ++w) squares += partial[w];
  }
  if (!live) return;
  const float scale = 1 / sqrtf(squares / static_cast<float>(part) + a.attrs.eps);
  for (int j = kStep * thread; j < part; j += kStep * 32 * kWarps) {
    if constexpr (kFour) {
      const float4 v = load4(x + j);
      const float4 w = load4(weight + j);
      const float4 r = residual ? load4(residual + j) : float4{};
      const float4 n = {v.x * scale * w.x, v.y * scale * w.y, v.z * scale * w.z, v.w * scale * w.w};
      // Rounded before it is added, as by two steps.
      store4(y + j, residual ? float4{__fadd_rn(r.x, n.x), __fadd_rn(r.y, n.y), __fadd_rn(r.z, n.z),
                                      __fadd_rn(r.w, n.w)}
                             : n);
    } else {
      const float n = x[j] * scale * weight[j];
      y[j] = residual ? __fadd_rn(residual[j], n) : n;
    }
  }
}

// A warp takes one group of one token: twice over its elements, then out.
__global__ void __launch_bounds__(256) layer_norm(CudaLayerNormArgs a) {
  begin_kernel();
  const int part = static_cast<int>(a.width) / a.attrs.groups;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int64_t item = int64_t{blockIdx.x} * 8 + threadIdx.x / 32;
  if (item >= a.tokens * a.attrs.groups) return;
  const int64_t t = item / a.attrs.groups, g = item % a.attrs.groups;
  const float* x = a.x + t * a.x_stride + g * part;
  float* y = a.y + t * a.y_stride + g * part;
  const float* weight = a.weight + g * a.weight_step;
  float sum = 0, squares = 0;
  for (int j = lane; j < part; j += 32) sum += x[j];
  const float mean = warp_sum(sum) / static_cast<float>(part);
  for (int j = lane; j < part; j += 32) squares = fmaf(x[j] - mean, x[j] - mean, squares);
  const float scale = 1 / sqrtf(warp_sum(squares) / static_cast<float>(part) + a.attrs.eps);
  for (int j = lane; j < part; j += 32) {
    y[j] = fmaf((x[j] - mean) * scale, weight[j], a.bias ? a.bias[j] : 0.0f);
  }
}

// One thread a pair of one head.
__global__ void __launch_bounds__(256) rope(CudaRopeArgs a) {
  begin_kernel();
  const int half = a.attrs.rotary_dim / 2;
  const int item = static_cast<int>(blockIdx.x) * 256 + static_cast<int>(threadIdx.x);
  if (item >= half * a.attrs.heads) return;
  const int h = item / half, i = item % half;
  const int64_t t = blockIdx.y;
  const float angle = static_cast<float>(max(a.position[a.axis[i]][t], 0)) * a.inv_freq[i];
  float s, c;
  sincosf(angle, &s, &c);
  s *= a.attrs.mscale;
  c *= a.attrs.mscale;
  const bool interleaved = a.attrs.interleaved != 0;
  const int first = interleaved ? 2 * i : i, other = interleaved ? 1 : half;
  const float* x = a.x + t * a.x_stride + h * a.attrs.head_dim + a.attrs.rotary_begin + first;
  float* y = a.y + t * a.y_stride + h * a.attrs.y_head_dim + a.attrs.y_begin + first;
  const float x0 = x[0], x1 = x[other];
  y[0] = x0 * c - x1 * s;
  y[other] = x0 * s + x1 * c;
}

// A thread an element of a row of y.
__global__ void __launch_bounds__(256) pool_rows(CudaPoolRowsArgs a, int64_t y_width) {
  begin_kernel();
  const int64_t i = int64_t{blockIdx.x} * 256 + threadIdx.x, t = blockIdx.y;
  const int64_t first = a.first[t], columns = a.grid[0], side = a.attrs.side;
  if (i >= y_width || first < 0) return;
  const auto at = [&](int64_t number, int64_t element) {
    return a.x[(first + number / side * columns + number % side) * a.x_stride + element];
  };
  const int64_t count = side * side;
  float v = 0;
  if (a.attrs.unfold == static_cast<int32_t>(Unfold::Channels)) {
    v = at(i % count, i / count);
  } else if (a.attrs.unfold == static_cast<int32_t>(Unfold::Patches)) {
    v = at(i / a.width, i % a.width);
  } else {
    for (int64_t number = 0; number < count; ++number) v = __fadd_rn(v, at(number, i));
    v = __fdiv_rn(v, static_cast<float>(count));
  }
  a.y[t * a.y_stride + i] = v;
}

// A row op, kEach elements a thread; with its own attributes, since device code opens no variant.
template <StepOp op, int kEach>
__global__ void __launch_bounds__(256) rows(RowsOperands a, AttrsOf<op> attrs) {
  begin_kernel();
  const int i = (static_cast<int>(blockIdx.x) * 256 + static_cast<int>(threadIdx.x)) * kEach;
  if (i >= static_cast<int>(a.width)) return;
  const int64_t t = a.token_begin + blockIdx.y;
  float* y = a.y + t * a.y_stride + i;
  const int64_t row = input_row<op>(a, t);
  if (row < 0) {
    for (int e = 0; e < kEach; ++e) y[e] = 0;
    return;
  }
  const RowInputs x = inputs_at(a, row);
  const RowOp<op> f(x, attrs);
  constexpr bool kTwo = kElementInputs<op> == 2;
  if constexpr (kEach == 4) {
    const float4 p = load4(x.in[0] + i);
    if constexpr (kTwo) {
      const float4 q = load4(x.in[1] + i);
      store4(y, {f(p.x, q.x), f(p.y, q.y), f(p.z, q.z), f(p.w, q.w)});
    } else {
      store4(y, {f(p.x), f(p.y), f(p.z), f(p.w)});
    }
  } else if constexpr (kTwo) {
    *y = f(x.in[0][i], x.in[1][i]);
  } else {
    *y = f(x.in[0][i]);
  }
}

template <StepOp op>
Status launch_rows(const RowsArgs& a, CudaStream stream) {
  bool four = by_four(a.width, {a.y_stride}, {a.y});
  for (int n = 0; n < kElementInputs<op>; ++n) {
    four = four && by_four(a.width, {a.in[n].stride}, {a.in[n].data});
  }
  const AttrsOf<op>& attrs = *std::get_if<AttrsOf<op>>(&a.attrs);
  const int64_t threads = four ? a.width / 4 : a.width;
  const dim3 grid(static_cast<unsigned>(ceil_div<int64_t>(threads, 256)),
                  static_cast<unsigned>(a.token_end - a.token_begin));
  const RowsOperands& operands = a;
  return launch(info(op).name.data(), four ? rows<op, 4> : rows<op, 1>, grid, 256, 0, stream,
                operands, attrs);
}

}  // namespace

Status launch_rms_norm(const CudaRmsNormArgs& a, CudaStream stream) {
  const int64_t part = a.width / a.attrs.groups, items = a.tokens * a.attrs.groups;
  const bool four =
      by_four(part, {a.x_stride, a.residual_stride, a.y_stride}, {a.x, a.residual, a.y, a.weight});
  if (part <= 512) {
    const dim3 grid(static_cast<unsigned>(ceil_div<int64_t>(items, 8)));
    return four ? launch("rms_norm", rms_norm<1, true>, grid, 256, 0, stream, a)
                : launch("rms_norm", rms_norm<1, false>, grid, 256, 0, stream, a);
  }
  const dim3 grid(static_cast<unsigned>(items));
  return four ? launch("rms_norm", rms_norm<8, true>, grid, 256, 0, stream, a)
              : launch("rms_norm", rms_norm<8, false>, grid, 256, 0, stream, a);
}

Status launch_layer_norm(const CudaLayerNormArgs& a, CudaStream stream) {
  const dim3 grid(static_cast<unsigned>(ceil_div<int64_t>(a.tokens * a.attrs.groups, 8)));
  return launch("layer_norm", layer_norm, grid, 256, 0, stream, a);
}

Status launch_pool_rows(const CudaPoolRowsArgs& a, CudaStream stream) {
  const bool unfolds = a.attrs.unfold != static_cast<int32_t>(Unfold::None);
  const int64_t width = a.width * (unfolds ? a.attrs.patches() : 1);
  const dim3 grid(static_cast<unsigned>(ceil_div<int64_t>(width, 256)),
                  static_cast<unsigned>(a.tokens));
  return launch("pool_rows", pool_rows, grid, 256, 0, stream, a, width);
}

Status launch_rope(const CudaRopeArgs& a, CudaStream stream) {
  if (a.attrs.rotary_dim / 2 > CudaRopeArgs::kMostPairs) {
    return Error{"rope: " + std::to_string(a.attrs.rotary_dim / 2) + " pairs of a head, at most " +
                 std::to_string(CudaRopeArgs::kMostPairs)};
  }
  const dim3 grid(ceil_div(a.attrs.rotary_dim / 2 * a.attrs.heads, 256),
                  static_cast<unsigned>(a.tokens));
  return launch("rope", rope, grid, 256, 0, stream, a);
}

LaunchRows find_cuda_rows(StepOp op) {
#define KTX_ROW_OP(id, family, arithmetic, sentence) \
  if (op == StepOp::id) return launch_rows<StepOp::id>;
#include "kernels/rows/row_ops.def"
#undef KTX_ROW_OP
  return nullptr;
}

}  // namespace ktx::kernels

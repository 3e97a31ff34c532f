// A gated delta net for one token of each text (sm_90): convolution, delta rule, norm of the heads
// and gate in one launch. Heads of 128, four taps.
//
// A block takes one (text, head) after another. Its matrix of 64 KiB comes into shared memory by a
// bulk copy, is changed there and leaves by another; a warp of its own asks for both, kStages
// matrices ahead, so that memory works all the time. The first matrices are asked for before the
// wait for the kernel ahead, which writes no state.
//
// 16 warps compute: warp w has columns 32 * (w % 4) .. + 31 of rows 32 * (w / 4) .. + 31, lane l
// columns 4 * (l % 8) .. + 3 of every fourth row from l / 8 on. The sums of a token as in
// delta_rule.cu are taken over the matrix as it was: over the lanes first, then over the warps, in
// rising order.
//
// Measured: bench/2026-11-gpu-states.md.
#include "kernels/cuda/common/bulk_copy.cuh"
#include "kernels/cuda/common/cuda_launch.cuh"
#include "kernels/cuda/common/mma.cuh"
#include "kernels/cuda/common/state_matrix.cuh"
#include "kernels/cuda/delta_net/delta_gates.cuh"
#include "kernels/gpu/gpu_limits.h"
#include "kernels/rows/glu.h"

namespace ktx::kernels {
namespace {

constexpr int kDim = kDeltaStepDim, kTaps = kDeltaStepTaps;
constexpr int kComputeWarps = 16, kComputeThreads = 32 * kComputeWarps;
constexpr int kThreads = kComputeThreads + 32;
[[maybe_unused]] constexpr int kRowWarps = 4, kRows = kDim / kRowWarps / 4;  // of a lane
[[maybe_unused]] constexpr int kMatrixFloats = kDim * kDim, kMatrixBytes = kMatrixFloats * 4;
constexpr int kConvThreads = 3 * kDim;  // of q, k and v; those behind them: norm and gate

template <int kStages>
struct Shared {
  alignas(128) float matrix[kStages][kMatrixFloats];
  float qkv[3][kDim];
  float sums[2][kRowWarps][kDim];  // of known and read
  float y[kDim];
  float kept, strength;
  uint64_t full[kStages], done[kStages];
};

// The slots of a text's states.
struct TextSlots {
  int in = -1, out = -1;

  // The slots of one of the launch's items; none for items behind the last and for padding.
  __device__ static TextSlots of_item(const CudaDeltaStepArgs& a, int item, int items) {
    if (item >= items) return {};
    const CudaTexts& texts = a.rule.texts;
    const int text = item / a.rule.attrs.value_heads, begin = texts.begin[text];
    if (begin == texts.begin[text + 1]) return {};
    return {texts.segments[begin].in, texts.segments[begin].out};
  }
  __device__ bool live() const { return out >= 0; }
};

// What a thread brings of the next item: its channel of the convolution (weight, past, x); those
// behind them x of the gate, and the first of these what the gates of the rule are made of.
struct Inputs {
  float4 weight{};
  float past[kTaps - 1] = {}, x = 0;
  GateInputs gates{};
};

#if __CUDA_ARCH__ >= 900
__device__ __forceinline__ void compute_warps_meet() {
  asm volatile("bar.sync 1, %0;" ::"n"(kComputeThreads) : "memory");
}

class Step {
 public:
  __device__ Step(const CudaDeltaStepArgs& a, int item, const TextSlots& slots)
      : a_(a),
        text_(item / a.rule.attrs.value_heads),
        head_(item % a.rule.attrs.value_heads),
        slots_(slots) {
    const int heads = a.rule.attrs.key_heads, repeats = a.rule.attrs.value_heads / heads;
    key_head_ = a.rule.attrs.tiled != 0 ? head_ % heads : head_ / repeats;
    first_of_key_ = a.rule.attrs.tiled != 0 ? head_ < heads : head_ % repeats == 0;
  }
  __device__ const TextSlots& slots() const { return slots_; }
  __device__ float* matrix(int slot) const {
    return a_.rule.states.slots + slot * a_.rule.states.slot_floats +
           int64_t{head_} * kMatrixFloats;
  }

  // What no kernel of this pass writes.
  __device__ void bring_states(Inputs& in, int thread) const {
    if (!slots_.live() || thread >= kConvThreads) return;
    const int c = channel(thread);
    in.weight = load4(a_.conv.weight + int64_t{c} * kTaps);
#pragma unroll
    for (int j = 0; j < kTaps - 1; ++j) {
      in.past[j] = slots_.in >= 0 ? conv_state(slots_.in)[int64_t{j} * channels() + c] : 0;
    }
  }
  __device__ void bring_rows(Inputs& in, int thread) const {
    if (!slots_.live()) return;
    if (thread < kConvThreads) {
      in.x = a_.conv.x[text_ * a_.conv.x_stride + channel(thread)];
      return;
    }
    in.x = a_.gate[text_ * a_.gate_stride + head_ * kDim + thread - kConvThreads];
    if (thread == kConvThreads) in.gates = gate_inputs(a_.rule, head_, text_);
  }

  // One channel's output and its state behind the token.
  __device__ float convolve(const Inputs& in, int thread) const {
    const float w[kTaps] = {in.weight.x, in.weight.y, in.weight.z, in.weight.w};
    float sum = 0;
#pragma unroll
    for (int j = 0; j < kTaps - 1; ++j) sum = fmaf(w[j], in.past[j], sum);
    sum = fmaf(w[kTaps - 1], in.x, sum);
    if (thread >= 2 * kDim || first_of_key_) {
      float* const out = conv_state(slots_.out) + channel(thread);
#pragma unroll
      for (int j = 0; j < kTaps - 2; ++j) out[int64_t{j} * channels()] = in.past[j + 1];
      out[int64_t{kTaps - 2} * channels()] = in.x;
    }
    return sum / (1 + expf(-sum));
  }
  __device__ void write(int column, float value) const {
    a_.rule.y[text_ * a_.rule.y_stride + head_ * kDim + column] = value;
  }

 private:
  __device__ int channels() const {
    return a_.conv.attrs.channels;
  }
  __device__ int channel(int thread) const {
    const int heads = a_.rule.attrs.key_heads, part = thread / kDim;
    return (part < 2 ? part * heads + key_head_ : 2 * heads + head_) * kDim + thread % kDim;
  }
  __device__ float* conv_state(int slot) const {
    return a_.conv.states.slots + slot * a_.conv.states.slot_floats;
  }

  const CudaDeltaStepArgs& a_;
  int text_, head_, key_head_;
  bool first_of_key_;  // whose block keeps the states of q and k
  TextSlots slots_;
};

// Asks for matrices and sends them back.
template <int kStages>
__device__ __forceinline__ void move_matrices(const CudaDeltaStepArgs& a, Shared<kStages>& shared,
                                              int items) {
  const auto item_of = [](int n) { return static_cast<int>(blockIdx.x + n * gridDim.x); };
  const auto step_of = [&](int n) {
    return Step(a, item_of(n), TextSlots::of_item(a, item_of(n), items));
  };
  const auto bring = [&](int n) {
    const Step step = step_of(n);
    uint64_t* const full = shared.full + n % kStages;
    if (step.slots().live() && step.slots().in >= 0) {
      bulk_copy(shared.matrix[n % kStages], step.matrix(step.slots().in), kMatrixBytes, full);
    } else {
      barrier_arrive(full);
    }
  };
  for (int n = 0; n < kStages && item_of(n) < items; ++n) bring(n);
  for (int n = 0; item_of(n) < items; ++n) {
    const int stage = n % kStages;
    const Step step = step_of(n);
    barrier_wait(shared.done + stage, n / kStages % 2);
    if (step.slots().live()) {
      bulk_store(step.matrix(step.slots().out), shared.matrix[stage], kMatrixBytes);
    }
    if (item_of(n + kStages) >= items) continue;
    wait_for_bulk_store_reads();
    bring(n + kStages);
  }
  wait_for_bulk_stores();
}

// The two sums of the lanes with the same columns, of which each lane keeps two: known (lanes below
// 8 of 16) or read, columns 2 * (lane / 16) and the next.
__device__ __forceinline__ float2 add_rows(const float (&known)[4], const float (&read)[4],
                                           int lane) {
  const bool reads = (lane & 8) != 0, right = (lane & 16) != 0;
  float four[4];
#pragma unroll
  for (int c = 0; c < 4; ++c) {
    four[c] =
        (reads ? read[c] : known[c]) + __shfl_xor_sync(kAllLanes, reads ? known[c] : read[c], 8);
  }
  const float x = __shfl_xor_sync(kAllLanes, right ? four[0] : four[2], 16);
  const float y = __shfl_xor_sync(kAllLanes, right ? four[1] : four[3], 16);
  return right ? float2{four[2] + x, four[3] + y} : float2{four[0] + x, four[1] + y};
}

__device__ __forceinline__ float dot4(const float4& a, const float4& b) {
  return fmaf(a.x, b.x, fmaf(a.y, b.y, fmaf(a.z, b.z, a.w * b.w)));
}
#endif

template <int kStages>
__global__ void __launch_bounds__(kThreads, 1)
    delta_step(const __grid_constant__ CudaDeltaStepArgs a) {
#if __CUDA_ARCH__ >= 900
  let_next_kernel_start();
  extern __shared__ uint4 memory[];
  auto& shared = *reinterpret_cast<Shared<kStages>*>(memory);
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32, warp = thread / 32;
  const int items = static_cast<int>(a.rule.texts.texts) * a.rule.attrs.value_heads;
  if (thread == 0) {
    for (int s = 0; s < kStages; ++s) {
      barrier_init(shared.full + s, 1);
      barrier_init(shared.done + s, 1);
    }
    barrier_init_done();
  }
  __syncthreads();
  if (warp == kComputeWarps) {
    if (lane == 0) move_matrices<kStages>(a, shared, items);
    wait_for_inputs();  // as every kernel must
    return;
  }
  const int row_warp = warp / 4, column = warp % 4 * 32 + lane % 8 * 4;
  const int first_row = row_warp * (kDim / kRowWarps) + lane / 8;  // and every fourth
  const bool norms = thread >= kConvThreads;
  const float norm = norms ? a.norm[thread - kConvThreads] : 0;
  const float head_scale = 1 / sqrtf(static_cast<float>(kDim));

  // The inputs of an item are on their way while the one before it is computed, its slots while
  // that one's inputs are.
  int item = static_cast<int>(blockIdx.x);
  const int blocks = static_cast<int>(gridDim.x);
  Inputs inputs;
  TextSlots slots = TextSlots::of_item(a, item, items);
  TextSlots next_slots = TextSlots::of_item(a, item + blocks, items);
  Step(a, item, slots).bring_states(inputs, thread);
  wait_for_inputs();
  Step(a, item, slots).bring_rows(inputs, thread);
  for (int n = 0; item < items; ++n) {
    const Step step(a, item, slots);
    const int stage = n % kStages;
    const float gate = inputs.x;
    if (!step.slots().live()) {
      if (norms) step.write(thread - kConvThreads, 0);
      if (thread == 0) barrier_arrive(shared.done + stage);
    } else if (!norms) {
      shared.qkv[thread / kDim][thread % kDim] = step.convolve(inputs, thread);
    } else if (thread == kConvThreads) {
      const Gates gates = gates_of(inputs.gates);
      shared.kept = expf(gates.log_kept);
      shared.strength = gates.strength;
    }
    item += blocks;
    slots = next_slots;
    next_slots = TextSlots::of_item(a, item + blocks, items);
    Step(a, item, slots).bring_states(inputs, thread);
    Step(a, item, slots).bring_rows(inputs, thread);
    if (!step.slots().live()) continue;
    compute_warps_meet();

    // q and k as they came: their lengths are divided out of the sums.
    const float4 q4 = load4(shared.qkv[0] + 4 * lane), k4 = load4(shared.qkv[1] + 4 * lane);
    const float qk = warp_sum(dot4(q4, k4));
    const float k_scale = 1 / sqrtf(warp_sum(dot4(k4, k4)) + 1e-6f);
    const float q_scale = head_scale / sqrtf(warp_sum(dot4(q4, q4)) + 1e-6f);
    float* const matrix = shared.matrix[stage] + first_row * kDim + column;
    barrier_wait(shared.full + stage, n / kStages % 2);
    float4 m[kRows];
    float known[4] = {}, read[4] = {};
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      m[i] = step.slots().in >= 0 ? load4(matrix + 4 * i * kDim) : float4{};
      const float q = shared.qkv[0][first_row + 4 * i], k = shared.qkv[1][first_row + 4 * i];
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        known[c] = fmaf(k, part(m[i], c), known[c]);
        read[c] = fmaf(q, part(m[i], c), read[c]);
      }
    }
    const float2 sums = add_rows(known, read, lane);
    *reinterpret_cast<float2*>(shared.sums[lane >> 3 & 1][row_warp] + column + (lane >> 4) * 2) =
        sums;
    compute_warps_meet();

    const float kept = shared.kept, strength = shared.strength;
    const float4 v = load4(shared.qkv[2] + column);
    float4 known4 = load4(shared.sums[0][0] + column), read4 = load4(shared.sums[1][0] + column);
#pragma unroll
    for (int w = 1; w < kRowWarps; ++w) {
      const float4 x = load4(shared.sums[0][w] + column), y = load4(shared.sums[1][w] + column);
      known4 = {known4.x + x.x, known4.y + x.y, known4.z + x.z, known4.w + x.w};
      read4 = {read4.x + y.x, read4.y + y.y, read4.z + y.z, read4.w + y.w};
    }
    float change[4], y[4];
#pragma unroll
    for (int c = 0; c < 4; ++c) {
      change[c] = k_scale * strength * (part(v, c) - kept * k_scale * part(known4, c));
      y[c] = q_scale * fmaf(qk, change[c], kept * part(read4, c));
    }
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      const float k = shared.qkv[1][first_row + 4 * i];
      store4(matrix + 4 * i * kDim,
             {fmaf(k, change[0], kept * m[i].x), fmaf(k, change[1], kept * m[i].y),
              fmaf(k, change[2], kept * m[i].z), fmaf(k, change[3], kept * m[i].w)});
    }
    if (row_warp == 0 && lane < 8) store4(shared.y + column, {y[0], y[1], y[2], y[3]});
    publish_to_bulk_copies();
    compute_warps_meet();
    if (thread == 0) barrier_arrive(shared.done + stage);
    if (norms) {
      const float4 y4 = load4(shared.y + 4 * lane);
      const float scale = 1 / sqrtf(warp_sum(dot4(y4, y4)) / kDim + a.eps);
      const int c = thread - kConvThreads;
      step.write(c, row_glu(a.glu, gate, shared.y[c] * scale * norm));
    }
  }
#endif
}

template <int kStages>
Status launch_stages(const CudaDeltaStepArgs& a, int blocks, CudaStream stream) {
  return launch("delta_step", delta_step<kStages>, static_cast<unsigned>(blocks), kThreads,
                sizeof(Shared<kStages>), stream, a);
}

}  // namespace

Status launch_delta_step(const CudaDeltaStepArgs& a, CudaStream stream) {
  if (!gpu_delta_step_takes(a.rule.attrs, a.conv.attrs) || a.conv.bias != nullptr) {
    return Error{"delta_step: no GPU kernel takes these heads or taps"};
  }
  if (!a.rule.texts.one_token_each) return Error{"delta_step: more than a token of a text"};
  if (!four_floats_at_a_time({a.rule.states.slots, a.conv.weight}, {a.rule.states.slot_floats})) {
    return Error{"delta_step: states or weights that do not begin at multiples of 16 bytes"};
  }
  const int64_t items = a.rule.texts.texts * a.rule.attrs.value_heads;
  const int sms = sm_count();
  return items <= sms ? launch_stages<1>(a, static_cast<int>(items), stream)
                      : launch_stages<3>(a, sms, stream);
}

}  // namespace ktx::kernels

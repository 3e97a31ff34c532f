// The heads of one token on their way into attention_decode.cuh, by the warps of a block: RMS norm
// and rope in registers, queries to shared memory in F16, the new key and value as the cache has
// them.
//
//   HeadJobs<KvType::F16, 128, 8, 2> jobs(args, shared, token, ...);   // norms, cosines
//   wait_for_inputs();
//   jobs.load(), jobs.finish(key_row, value_row);
//   __syncthreads();
#pragma once

#include "kernels/cuda/attention/attention_decode.cuh"
#include "kernels/cuda/attention/attention_head.cuh"

namespace ktx::kernels {

// A head on its way into attention, by one warp, in registers: lane l has the pairs of rope
// kPairs * l and on, of pair j elements x[j] and x[kPairs + j].
template <int kDim>
struct OneHead {
  static constexpr int kPairs = kDim / 64;
  float x[2 * kPairs];

  __device__ __forceinline__ static int element(bool interleaved, int second, int j, int lane) {
    const int pair = kPairs * lane + j;
    return interleaved ? 2 * pair + second : pair + second * (kDim / 2);
  }
  // Past L1, where a line may be older than the kernel ahead.
  __device__ __forceinline__ void load(const float* from, bool interleaved, int lane) {
    if constexpr (kPairs == 1) {
      x[0] = __ldcg(from + element(interleaved, 0, 0, lane));
      x[1] = __ldcg(from + element(interleaved, 1, 0, lane));
    } else {
      const auto* pairs = reinterpret_cast<const float2*>(from);
      const float2 a = __ldcg(pairs + (interleaved ? 2 * lane : lane));
      const float2 b = __ldcg(pairs + (interleaved ? 2 * lane + 1 : 32 + lane));
      x[0] = a.x, x[1] = interleaved ? b.x : a.y;
      x[2] = interleaved ? a.y : b.x, x[3] = b.y;
    }
  }
  __device__ __forceinline__ void norm(const OneHead& weight, float eps) {
    float squares = 0;
#pragma unroll
    for (float v : x) squares = fmaf(v, v, squares);
    const float scale = 1 / sqrtf(warp_sum(squares) / static_cast<float>(kDim) + eps);
#pragma unroll
    for (int i = 0; i < 2 * kPairs; ++i) x[i] = x[i] * scale * weight.x[i];
  }
  __device__ __forceinline__ void turn(const float2 (&turns)[kPairs]) {
#pragma unroll
    for (int j = 0; j < kPairs; ++j) {
      const float x0 = x[j], x1 = x[kPairs + j];
      x[j] = x0 * turns[j].x - x1 * turns[j].y;
      x[kPairs + j] = x0 * turns[j].y + x1 * turns[j].x;
    }
  }
  // put(element, value) of each.
  template <class Put>
  __device__ __forceinline__ void each(bool interleaved, int lane, Put put) const {
#pragma unroll
    for (int i = 0; i < 2 * kPairs; ++i) {
      put(element(interleaved, i / kPairs, i % kPairs, lane), x[i]);
    }
  }
};

// Shared memory of the heads: queries as above, the new key and value as the cache has them, and
// floats of a warp.
template <int kDim, int kWarps>
struct OneHeads {
  uint4 query[kDim * kOneHeads / 8];
  uint4 fresh[2][kDim * 2 / 16];
  float floats[kWarps][kDim];

  __device__ __forceinline__ const std::byte* row(int i) const {
    return reinterpret_cast<const std::byte*>(fresh[i]);
  }
};

// Rope where it turns some elements of a head only, by one warp.
static __device__ __noinline__ void turn_some(const CudaAttentionPrepare& p, int position,
                                              float* head, int lane) {
  const int half = p.rope.rotary_dim / 2;
  const bool interleaved = p.rope.interleaved != 0;
  __syncwarp();
  for (int i = lane; i < half; i += 32) {
    const float2 turn = rope_turn(p, position, i);
    float* first = head + p.rope.rotary_begin + (interleaved ? 2 * i : i);
    float* other = first + (interleaved ? 1 : half);
    const float x0 = *first, x1 = *other;
    *first = x0 * turn.x - x1 * turn.y;
    *other = x0 * turn.y + x1 * turn.x;
  }
  __syncwarp();
}

// What the warps of a block make of q, k and v: job j is query head head0 + j, then the new key and
// the new value. A warp has every kWarps-th job, kJobs at most.
template <KvType kType, int kDim, int kWarps, int kJobs>
class HeadJobs {
 public:
  // Reads norms and turns, which are there before q, k and v. `fresh`:
  // the block needs the new key and value.
  __device__ __forceinline__ HeadJobs(const CudaAttentionArgs& a, OneHeads<kDim, kWarps>& shared,
                                      int token, int position, int kv_head, int head0, int heads,
                                      bool fresh, int warp, int lane)
      : a_(a),
        shared_(shared),
        token_(token),
        position_(position),
        kv_head_(kv_head),
        head0_(head0),
        heads_(heads),
        jobs_(heads + (fresh ? 2 : 0)),
        warp_(warp),
        lane_(lane) {
    const CudaAttentionPrepare& p = a.prepare;
    if (whole()) {
#pragma unroll
      for (int j = 0; j < Head::kPairs; ++j)
        turns_[j] = rope_turn(p, position, Head::kPairs * lane + j);
    }
#pragma unroll
    for (int i = 0; i < kJobs; ++i) {
      const int job = warp + i * kWarps;
      const float* norm = job < heads ? p.q_norm : p.k_norm;
      if (norm && job <= heads && job < jobs_) weight_[i].load(norm, interleaved(), lane);
    }
    for (int i = warp * 32 + lane; i < kDim * kOneHeads / 8; i += 32 * kWarps) {
      if (i / 4 % kOneHeads >= heads) shared.query[i] = {0, 0, 0, 0};
    }
  }
  __device__ __forceinline__ void load() {
    const CudaAttentionPrepare& p = a_.prepare;
#pragma unroll
    for (int i = 0; i < kJobs; ++i) {
      const int job = warp_ + i * kWarps;
      if (job >= jobs_) continue;
      const float* from = job < heads_    ? a_.q + token_ * a_.q_stride + (head0_ + job) * kDim
                          : job == heads_ ? p.key + token_ * p.key_stride + kv_head_ * kDim
                                          : p.value + token_ * p.value_stride + kv_head_ * kDim;
      x_[i].load(from, interleaved(), lane_);
    }
  }
  // To shared memory, which all warps read behind a barrier; and into the cache where rows are
  // given.
  __device__ __forceinline__ void finish(std::byte* key_row, std::byte* value_row) {
    const CudaAttentionPrepare& p = a_.prepare;
#pragma unroll
    for (int i = 0; i < kJobs; ++i) {
      const int job = warp_ + i * kWarps;
      if (job >= jobs_) continue;
      Head& x = x_[i];
      if (job <= heads_) {
        if (job < heads_ ? p.q_norm : p.k_norm) {
          x.norm(weight_[i], job < heads_ ? p.q_eps : p.k_eps);
        }
        whole() ? x.turn(turns_) : turn_part(x);
      }
      if (job < heads_) {
        auto* to = reinterpret_cast<half*>(shared_.query);
        x.each(interleaved(), lane_, [&](int element, float v) {
          to[one_query_index(job, element)] = __float2half_rn(v * a_.attrs.scale);
        });
        continue;
      }
      const bool is_key = job == heads_;
      float* floats = shared_.floats[warp_];
      x.each(interleaved(), lane_, [&](int element, float v) { floats[element] = v; });
      __syncwarp();
      auto* row = reinterpret_cast<std::byte*>(shared_.fresh[is_key ? 0 : 1]);
#pragma unroll
      for (int e = lane_; e < kDim; e += 32) store_piece(kType, floats, e, kDim, row);
      __syncwarp();
      auto* to = reinterpret_cast<uint32_t*>(is_key ? key_row : value_row);
      const auto* words = reinterpret_cast<const uint32_t*>(row);
      for (int e = lane_; to && e < kv_row_bytes(kType, kDim) / 4; e += 32) to[e] = words[e];
    }
  }

 private:
  using Head = OneHead<kDim>;
  __device__ __forceinline__ bool interleaved() const {
    return a_.prepare.rope.interleaved != 0;
  }
  __device__ __forceinline__ bool whole() const {
    return a_.prepare.rope.rotary_begin == 0 && a_.prepare.rope.rotary_dim == kDim;
  }
  __device__ __forceinline__ void turn_part(Head& x) const {
    float* floats = shared_.floats[warp_];
    x.each(interleaved(), lane_, [&](int element, float v) { floats[element] = v; });
    turn_some(a_.prepare, position_, floats, lane_);
#pragma unroll
    for (int i = 0; i < 2 * Head::kPairs; ++i) {
      x.x[i] = floats[Head::element(interleaved(), i / Head::kPairs, i % Head::kPairs, lane_)];
    }
    __syncwarp();
  }

  const CudaAttentionArgs& a_;
  OneHeads<kDim, kWarps>& shared_;
  int token_, position_, kv_head_, head0_, heads_, jobs_, warp_, lane_;
  Head x_[kJobs], weight_[kJobs];
  float2 turns_[Head::kPairs];
};

}  // namespace ktx::kernels

// The heads of one token on their way into attention_decode.cuh, a warp a head: RMS norm and rope
// in registers, queries to shared memory in F16, the new key and value as the cache has them.
//
//   HeadJob<KvType::F16, 128> job(args, shared, position, ...);   // norm, cosines
//   wait_for_inputs();
//   job.load(), job.finish(row);
//   __syncthreads();
#pragma once

#include "kernels/cuda/attention/attention_decode.cuh"
#include "kernels/cuda/attention/attention_head.cuh"

namespace ktx::kernels {

constexpr int kKeyJob = kOneHeads, kValueJob = kKeyJob + 1, kOneJobs = kValueJob + 1;
constexpr int kFewTokens = 16;    // of a sequence in one launch, at most
constexpr int kOneWarpJobs = 16;  // warps of a block

// The arguments of a launch of one token, in few words: constants are met cold, too.
struct DecodeArgs {
  const int32_t *position, *sequence, *table;
  const int32_t* time;  // positions to rotate by; null: the same
  int table_stride, log_block_tokens;
  int group;  // heads of a KV head
  int window, chunked;
  const std::byte* pool;  // with the slot's offset
  int64_t block_bytes;
  int head_bytes, value_bytes;  // from a head to the next, from its keys to its values
  const float *inv_freq, *q_norm, *k_norm;
  float mscale, q_eps, k_eps;
  int rotary_begin, rotary_dim;
  const float *q, *key, *value;
  int q_stride, key_stride, value_stride, y_stride;
  float scale, softcap;  // times log2(e)
  const float* sinks;
  float* y;
  // Deep pasts: parts of splits, [token][head][split], and the inverse of their number.
  int splits, heads;
  uint32_t inverse_splits;
  float* part_values;
  float2* part_sums;
};

// Cosine and sine of an angle, times mscale, in short code: a quarter turn is taken off in double,
// so no angle is too large (attention_head.cuh has CUDA's).
__device__ __forceinline__ float2 short_turn(float angle, float mscale) {
  const int quadrant = __double2int_rn(double{angle} * 0.63661977236758134);
  const auto x = static_cast<float>(fma(double(quadrant), -1.5707963267948966, double{angle}));
  const float x2 = x * x;
  float s = fmaf(fmaf(fmaf(-1.9515296e-4f, x2, 8.3321609e-3f), x2, -1.6666655e-1f), x2 * x, x);
  float c = fmaf(fmaf(fmaf(fmaf(2.4433157e-5f, x2, -1.3887316e-3f), x2, 4.1666646e-2f), x2, -0.5f),
                 x2, 1.0f);
  const float sine = quadrant & 1 ? c : s, cosine = quadrant & 1 ? s : c;
  return {(quadrant + 1) & 2 ? -cosine * mscale : cosine * mscale,
          quadrant & 2 ? -sine * mscale : sine * mscale};
}

// A head in registers: lane l has the pairs of rope kPairs * l and on, of pair j elements x[j] and
// x[kPairs + j].
template <int kDim, bool kInterleaved>
struct OneHead {
  static constexpr int kPairs = kDim / 64;
  float x[2 * kPairs];

  __device__ __forceinline__ static int element(int second, int j, int lane) {
    const int pair = kPairs * lane + j;
    return kInterleaved ? 2 * pair + second : pair + second * (kDim / 2);
  }
  // Past L1, where a line may be older than the kernel ahead.
  __device__ __forceinline__ void load(const float* from, int lane) {
    if constexpr (kPairs == 1) {
      x[0] = __ldcg(from + element(0, 0, lane));
      x[1] = __ldcg(from + element(1, 0, lane));
    } else {
      const auto* pairs = reinterpret_cast<const float2*>(from);
#pragma unroll
      for (int j = 0; j < kPairs; ++j) {
        if constexpr (kInterleaved) {
          const float2 v = __ldcg(pairs + kPairs * lane + j);
          x[j] = v.x, x[kPairs + j] = v.y;
        } else {  // j of the first elements, then of the second ones
          const float2 v = __ldcg(pairs + element(2 * j / kPairs, 2 * j % kPairs, lane) / 2);
          x[2 * j] = v.x, x[2 * j + 1] = v.y;
        }
      }
    }
  }
  __device__ __forceinline__ void norm(const OneHead& weight, float eps) {
    float squares = 0;
#pragma unroll
    for (float v : x) squares = fmaf(v, v, squares);
    const float scale = rsqrtf(warp_sum(squares) / static_cast<float>(kDim) + eps);
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
  // put(element, value) of each; pairs of elements side by side: put_two(element, two values).
  template <class Put, class PutTwo>
  __device__ __forceinline__ void each(int lane, Put put, PutTwo put_two) const {
    if constexpr (kInterleaved) {
#pragma unroll
      for (int j = 0; j < kPairs; ++j) {
        put_two(element(0, j, lane), float2{x[j], x[kPairs + j]});
      }
    } else if constexpr (kPairs > 1) {
#pragma unroll
      for (int j = 0; j < 2 * kPairs; j += 2) {
        put_two(element(j / kPairs, j % kPairs, lane), float2{x[j], x[j + 1]});
      }
    } else {
      put(element(0, 0, lane), x[0]), put(element(1, 0, lane), x[1]);
    }
  }
  // The same in F16, at to[index(element)].
  template <class Index>
  __device__ __forceinline__ void put_halves(int lane, half* to, float scale, Index index) const {
    each(
        lane, [&](int e, float v) { to[index(e)] = __float2half_rn(v * scale); },
        [&](int e, float2 v) {
          *reinterpret_cast<half2*>(to + index(e)) = __floats2half2_rn(v.x * scale, v.y * scale);
        });
  }
  __device__ __forceinline__ void put_floats(int lane, float* to) const {
    each(
        lane, [&](int e, float v) { to[e] = v; },
        [&](int e, float2 v) { *reinterpret_cast<float2*>(to + e) = v; });
  }
};

// Shared memory of the heads: queries as above, new keys and values (kFresh of each, by the tokens
// of the sequence) as the cache has them, and floats of a warp's job.
template <int kDim, int kFresh = 1>
struct OneHeads {
  uint4 query[kDim * kOneHeads / 8];
  uint4 fresh[2][kFresh][kDim * 2 / 16];
  float floats[kFresh == 1 ? kOneJobs : kOneWarpJobs][kDim];
};

// Rope where it turns some elements of a head only, by one warp.
static __device__ __noinline__ void turn_some(const DecodeArgs& a, bool interleaved, int position,
                                              float* head, int lane) {
  const int half = a.rotary_dim / 2;
  __syncwarp();
#pragma unroll 1
  for (int i = lane; i < half; i += 32) {
    const float2 turn = short_turn(static_cast<float>(position) * a.inv_freq[i], a.mscale);
    float* first = head + a.rotary_begin + (interleaved ? 2 * i : i);
    float* other = first + (interleaved ? 1 : half);
    const float x0 = *first, x1 = *other;
    *first = x0 * turn.x - x1 * turn.y;
    *other = x0 * turn.y + x1 * turn.x;
  }
  __syncwarp();
}

// The new keys and values that a block needs: `count` of its sequence, one after the other, the
// first one of token `token` at `position`.
struct FreshRows {
  int count, token, position;
};

// What a warp makes of q, k and v: job j is query head head0 + j, kKeyJob the new key, kValueJob
// the new value; warps from kOneJobs on have none. With few tokens (kFresh > 1) keys and values
// alternate behind the queries, and a warp's next job is kOneWarpJobs further on.
template <KvType kType, int kDim, bool kInterleaved, int kFresh = 1>
class HeadJob {
 public:
  static constexpr bool kFew = kFresh > 1;
  // Loads norms and frequencies, which are there before q, k and v.
  __device__ __forceinline__ HeadJob(const DecodeArgs& a, OneHeads<kDim, kFresh>& shared, int heads,
                                     int job, int lane)
      : a_(a), shared_(shared), job_(job), lane_(lane), is_q_(job < heads) {
    if constexpr (kFew) {
      row_ = (job - heads) / 2;
      job_ = is_q_ ? job : (job - heads) % 2 ? kValueJob : kKeyJob;
    }
    if (!is_q_ && job_ != kKeyJob) return;
    norm_ = is_q_ ? a.q_norm : a.k_norm;
    if (norm_) weight_.load(norm_, lane);
#pragma unroll
    for (int j = 0; j < Head::kPairs; ++j) {
      const int pair = Head::kPairs * lane + j;
      if (2 * pair < a.rotary_dim) turns_[j].x = a.inv_freq[pair];
    }
  }
  // Makes cosines of the frequencies. position: of the query; `spared`: by how much tokens of its
  // sequence are rotated less.
  __device__ __forceinline__ void turn_to(int position, int spared, const FreshRows& fresh) {
    const bool own = kFew ? row_ < fresh.count : fresh.count > 0;
    is_key_ = own && job_ == kKeyJob, is_value_ = own && job_ == kValueJob;
    position_ = (kFew && !is_q_ ? fresh.position + row_ : position) - spared;
    token_ = fresh.token + (kFew ? row_ : 0);
    if (!is_q_ && !is_key_) return;
#pragma unroll
    for (int j = 0; j < Head::kPairs; ++j) {
      turns_[j] = short_turn(static_cast<float>(position_) * turns_[j].x, a_.mscale);
    }
  }
  __device__ __forceinline__ void load(int token, int kv_head, int head0) {
    const int new_token = kFew ? token_ : token;
    const float* from = is_q_     ? a_.q + token * a_.q_stride + (head0 + job_) * kDim
                        : is_key_ ? a_.key + new_token * a_.key_stride + kv_head * kDim
                                  : a_.value + new_token * a_.value_stride + kv_head * kDim;
    if (is_q_ || is_key_ || is_value_) x_.load(from, lane_);
  }
  // To shared memory, which all warps read behind a barrier.
  __device__ __forceinline__ void finish() {
    if (is_q_ || is_key_) {
      if (norm_) x_.norm(weight_, is_q_ ? a_.q_eps : a_.k_eps);
      if (__builtin_expect(a_.rotary_dim == kDim, 1)) {
        x_.turn(turns_);
      } else {
        turn_part();
      }
    }
    if (is_q_) {
      x_.put_halves(lane_, reinterpret_cast<half*>(shared_.query), a_.scale,
                    [&](int element) { return one_query_index(job_, element); });
    } else if (is_key_ || is_value_) {
      void* fresh = shared_.fresh[is_key_ ? 0 : 1][row_];
      if constexpr (kType == KvType::F16) {
        x_.put_halves(lane_, static_cast<half*>(fresh), 1, [](int element) { return element; });
      } else {
        float* floats = scratch();
        x_.put_floats(lane_, floats);
        __syncwarp();
#pragma unroll 1
        for (int e = lane_; e < kDim; e += 32) {
          store_piece(kType, floats, e, kDim, static_cast<std::byte*>(fresh));
        }
      }
    }
  }

 private:
  using Head = OneHead<kDim, kInterleaved>;
  __device__ __forceinline__ float* scratch() const {
    return shared_.floats[kFew ? static_cast<int>(threadIdx.x / 32) : job_];
  }
  __device__ __forceinline__ void turn_part() {
    float* floats = scratch();
    x_.put_floats(lane_, floats);
    turn_some(a_, kInterleaved, position_, floats, lane_);
#pragma unroll
    for (int i = 0; i < 2 * Head::kPairs; ++i) {
      x_.x[i] = floats[Head::element(i / Head::kPairs, i % Head::kPairs, lane_)];
    }
    __syncwarp();
  }

  const DecodeArgs& a_;
  OneHeads<kDim, kFresh>& shared_;
  int job_, lane_, row_ = 0, token_ = 0, position_ = 0;  // that it is rotated by
  bool is_q_, is_key_ = false, is_value_ = false;
  const float* norm_ = nullptr;
  Head x_, weight_;
  float2 turns_[Head::kPairs] = {};
};

}  // namespace ktx::kernels

// best_logits (cuda_sampling.h). Every token is a 64-bit key, the logit's bits in their
// order above the inverted id, so that the largest keys are the best tokens:
//
//   row:  [ 1024 | 1024 | ... ]   a block per slice keeps its kKeep best keys, and the sum
//           |      |              of exponentials below its largest logit
//         [ 64 | 64 | ... ]       blocks of 1024 keys keep their best again, until one
//           |                     block is left: that writes the row
//         [ 64 ]
//
// A vocabulary of 151,936 takes 2 launches for the best token and 3 for the 64 best.
// Roofline: the row is read once, 0.6 MB, from L2 behind the product that wrote it.
#include "kernels/cuda/common/cuda_launch.cuh"
#include "kernels/cuda/common/mma.cuh"
#include "kernels/cuda/rows/cuda_sampling.h"

namespace ktx::kernels {
namespace {

constexpr int kThreads = 256;
constexpr int kSlice = 1024;  // tokens or keys that a block looks at
constexpr int kPerThread = kSlice / kThreads;
constexpr int kWarps = kThreads / 32;

// Keys: 0 is no token.
using Key = unsigned long long;

__device__ Key key_of(float logit, int id) {
  const uint32_t bits = __float_as_uint(logit + 0.0f);  // -0 is 0
  const uint32_t rising = bits >> 31 ? ~bits : bits | 0x80000000u;
  return Key{rising} << 32 | (0xFFFFFFFFu - static_cast<uint32_t>(id));
}
__device__ CudaTokenLogit token_of(Key key) {
  CudaTokenLogit token{-INFINITY, -1};
  if (key == 0) return token;
  const uint32_t rising = static_cast<uint32_t>(key >> 32);
  token.logit = __uint_as_float(rising >> 31 ? rising & 0x7FFFFFFFu : ~rising);
  token.id = static_cast<int>(0xFFFFFFFFu - static_cast<uint32_t>(key));
  return token;
}

struct SliceSum {
  float largest;  // -infinity: no token
  int sound;      // neither NaN nor +infinity
  double sum;     // of exp(logit - largest)
};

struct Shared {
  Key keys[kSlice];
  float largest[kWarps];
  double sum[kWarps];
};

// --- stages of a block; all threads take part --------------------------------------------

// Keeps the best `kKeep` of the kSlice keys in shared memory, in falling order.
template <int kKeep>
__device__ void keep_best(Shared& s) {
  const int thread = static_cast<int>(threadIdx.x);
  if constexpr (kKeep == 1) {
    for (int half = kSlice / 2; half > 0; half /= 2) {
      for (int i = thread; i < half; i += kThreads) s.keys[i] = max(s.keys[i], s.keys[i + half]);
      __syncthreads();
    }
  } else {  // a bitonic sort
    for (int run = 2; run <= kSlice; run *= 2) {
      for (int gap = run / 2; gap > 0; gap /= 2) {
        for (int pair = thread; pair < kSlice / 2; pair += kThreads) {
          const int i = 2 * pair - (pair & (gap - 1)), j = i + gap;
          const Key a = s.keys[i], b = s.keys[j];
          if ((a < b) == ((i & run) == 0)) s.keys[i] = b, s.keys[j] = a;
        }
        __syncthreads();
      }
    }
  }
}

__device__ float block_max(Shared& s, float v) {
  const int thread = static_cast<int>(threadIdx.x);
  v = warp_max(v);
  if (thread % 32 == 0) s.largest[thread / 32] = v;
  __syncthreads();
  v = s.largest[0];
  for (int w = 1; w < kWarps; ++w) v = fmaxf(v, s.largest[w]);
  return v;
}

__device__ double block_sum(Shared& s, double v) {
  const int thread = static_cast<int>(threadIdx.x);
  for (int o = 16; o > 0; o /= 2) v += __shfl_xor_sync(~0u, v, o);
  if (thread % 32 == 0) s.sum[thread / 32] = v;
  __syncthreads();
  v = 0;
  for (int w = 0; w < kWarps; ++w) v += s.sum[w];
  return v;
}

// --- kernels -----------------------------------------------------------------------------

template <int kKeep>
__global__ void __launch_bounds__(kThreads)
    best_of_slices(CudaBestLogitsArgs a, Key* keys, SliceSum* sums) {
  begin_kernel();
  __shared__ Shared s;
  const int thread = static_cast<int>(threadIdx.x);
  const int64_t r = blockIdx.y, slice = blockIdx.x;
  const float* logits = a.logits + r * a.logits_stride;
  const uint32_t* allowed = a.allowed ? a.allowed + r * a.allowed_words : nullptr;
  float v[kPerThread];
  float largest = -INFINITY;
  int sound = 1;
  for (int j = 0; j < kPerThread; ++j) {
    const int64_t id = slice * kSlice + j * kThreads + thread;
    v[j] = id < a.vocabulary ? logits[id] : -INFINITY;
    if (!(v[j] < INFINITY)) sound = 0, v[j] = -INFINITY;  // NaN fails every comparison
    const bool may = v[j] > -INFINITY && (!allowed || (allowed[id / 32] >> (id % 32) & 1));
    s.keys[j * kThreads + thread] = may ? key_of(v[j], static_cast<int>(id)) : 0;
    largest = fmaxf(largest, v[j]);
  }
  sound = __syncthreads_and(sound);
  largest = block_max(s, largest);
  double sum = 0;
  for (int j = 0; j < kPerThread; ++j) {
    if (v[j] > -INFINITY) sum += expf(v[j] - largest);
  }
  sum = block_sum(s, sum);
  keep_best<kKeep>(s);
  const int64_t place = r * gridDim.x + slice;
  if (thread == 0) sums[place] = {largest, sound, sum};
  for (int i = thread; i < kKeep; i += kThreads) keys[place * kKeep + i] = s.keys[i];
}

template <int kKeep>
__global__ void __launch_bounds__(kThreads)
    best_of_keys(CudaBestLogitsArgs a, const Key* in, int64_t count, Key* out, const SliceSum* sums,
                 int64_t slices) {
  begin_kernel();
  __shared__ Shared s;
  const int thread = static_cast<int>(threadIdx.x);
  const int64_t r = blockIdx.y, group = blockIdx.x;
  for (int i = thread; i < kSlice; i += kThreads) {
    const int64_t at = group * kSlice + i;
    s.keys[i] = at < count ? in[r * count + at] : 0;
  }
  __syncthreads();
  keep_best<kKeep>(s);
  if (gridDim.x > 1) {
    const int64_t place = r * gridDim.x + group;
    for (int i = thread; i < kKeep; i += kThreads) out[place * kKeep + i] = s.keys[i];
    return;
  }
  for (int i = thread; i < a.count; i += kThreads) a.best[r * a.count + i] = token_of(s.keys[i]);
  // The largest of the row need not be allowed.
  float most = -INFINITY;
  for (int64_t i = thread; i < slices; i += kThreads) {
    most = fmaxf(most, sums[r * slices + i].largest);
  }
  const double largest = block_max(s, most);
  int sound = 1;
  double sum = 0;
  for (int64_t i = thread; i < slices; i += kThreads) {
    const SliceSum part = sums[r * slices + i];
    sound &= part.sound;
    if (part.largest > -INFINITY) sum += part.sum * exp(part.largest - largest);
  }
  sound = __syncthreads_and(sound);
  sum = block_sum(s, sum);
  if (thread == 0) a.log_sum[r] = sound ? largest + log(sum) : NAN;
}

// --- launching ---------------------------------------------------------------------------

int64_t kept(int32_t count) {
  return count == 1 ? 1 : count <= 64 ? 64 : kCudaMostBest;
}
int64_t padded(int64_t bytes) {
  return (bytes + 255) / 256 * 256;
}

// sums | keys of the slices | keys of the groups | keys of the groups of groups, in turns.
struct Places {
  explicit Places(const CudaBestLogitsArgs& a) {
    slices = ceil_div<int64_t>(a.vocabulary, kSlice);
    const int64_t first = slices * kept(a.count);
    const int64_t second = ceil_div<int64_t>(first, kSlice) * kept(a.count);
    keys[0] = padded(a.rows * slices * static_cast<int64_t>(sizeof(SliceSum)));
    keys[1] = keys[0] + padded(a.rows * first * static_cast<int64_t>(sizeof(Key)));
    bytes = keys[1] + padded(a.rows * second * static_cast<int64_t>(sizeof(Key)));
  }
  int64_t slices, keys[2], bytes;
};

template <int kKeep>
Status launch_keeping(const CudaBestLogitsArgs& a, CudaStream stream) {
  const Places places(a);
  auto* sums = reinterpret_cast<SliceSum*>(a.workspace);
  Key* keys[2] = {reinterpret_cast<Key*>(a.workspace + places.keys[0]),
                  reinterpret_cast<Key*>(a.workspace + places.keys[1])};
  const auto rows = static_cast<unsigned>(a.rows);
  KTX_TRY(launch("best_logits", best_of_slices<kKeep>,
                 dim3(static_cast<unsigned>(places.slices), rows), kThreads, 0, stream, a, keys[0],
                 sums));
  int64_t count = places.slices * kKeep;
  for (int from = 0;; from ^= 1) {
    const int64_t groups = ceil_div<int64_t>(count, kSlice);
    KTX_TRY(launch("best_logits", best_of_keys<kKeep>, dim3(static_cast<unsigned>(groups), rows),
                   kThreads, 0, stream, a, keys[from], count, keys[from ^ 1], sums, places.slices));
    if (groups == 1) return {};
    count = groups * kKeep;
  }
}

}  // namespace

int64_t cuda_best_logits_workspace(const CudaBestLogitsArgs& a) {
  return Places(a).bytes;
}

Status launch_best_logits(const CudaBestLogitsArgs& a, CudaStream stream) {
  switch (kept(a.count)) {
    case 1:
      return launch_keeping<1>(a, stream);
    case 64:
      return launch_keeping<64>(a, stream);
    default:
      return launch_keeping<kCudaMostBest>(a, stream);
  }
}

}  // namespace ktx::kernels

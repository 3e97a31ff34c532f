// compress (cuda_attention.h): a block makes the entry of one token, a thread some of its channels;
// blocks of tokens that end none are done at once. Twice over the positions of a channel, for the
// largest score and for the sums, eight loads at a time: an entry of 128 positions reads 256 KiB.
#include "kernels/attention/compress.h"

#include "kernels/cuda/attention/cuda_attention.h"
#include "kernels/cuda/attention/kv_rows.cuh"
#include "kernels/cuda/common/cuda_launch.cuh"

namespace ktx::kernels {
namespace {

constexpr int kThreads = 512;

// One channel of an entry, as it is made of rows and scores.
struct Channel {
  const CudaCompressArgs& a;
  int sequence;
  float largest = -INFINITY, weights = 0, rows = 0;

  __device__ __forceinline__ float score(int position, int channel) const {
    const std::byte* row = kv_value(a.kv, sequence, channel / kCompressedChannels, position);
    const int64_t bias = position % a.attrs.every * a.attrs.channels() + channel;
    return kv_element(a.kv.layout.type, row, channel % kCompressedChannels) + a.bias[bias];
  }
  __device__ __forceinline__ void see(const EntryPart& part, int channel) {
    const int c = static_cast<int>(part.channel) + channel;
#pragma unroll 8
    for (int p = static_cast<int>(part.begin); p < static_cast<int>(part.end); ++p) {
      largest = fmaxf(largest, score(p, c));
    }
  }
  __device__ __forceinline__ void add(const EntryPart& part, int channel) {
    const int c = static_cast<int>(part.channel) + channel;
#pragma unroll 8
    for (int p = static_cast<int>(part.begin); p < static_cast<int>(part.end); ++p) {
      const float weight = expf(score(p, c) - largest);
      const std::byte* row = kv_key(a.kv, sequence, c / kCompressedChannels, p);
      weights += weight;
      rows = fmaf(weight, kv_element(a.kv.layout.type, row, c % kCompressedChannels), rows);
    }
  }
};

__device__ __forceinline__ void rotate(const CompressAttrs& attrs, const float* inv_freq,
                                       int position, float* entry) {
  const int half = attrs.rotary_dim / 2;
  float* const end = entry + attrs.dim - attrs.rotary_dim;
  for (int i = static_cast<int>(threadIdx.x); i < half; i += kThreads) {
    float s, c;
    sincosf(static_cast<float>(position) * inv_freq[i], &s, &c);
    s *= attrs.mscale, c *= attrs.mscale;
    float& x = end[attrs.interleaved ? 2 * i : i];
    float& y = end[attrs.interleaved ? 2 * i + 1 : i + half];
    const float x0 = x, y0 = y;
    x = x0 * c - y0 * s;
    y = x0 * s + y0 * c;
  }
}

__global__ void __launch_bounds__(kThreads) compress(CudaCompressArgs a) {
  begin_kernel();
  extern __shared__ float entry[];  // dim
  const int64_t t = blockIdx.x;
  const int position = a.kv.position[t];
  if (position < 0 || (position + 1) % a.attrs.every != 0) return;
  const int thread = static_cast<int>(threadIdx.x), dim = a.attrs.dim;
  const int sequence = a.kv.sequence[t], number = position / a.attrs.every;
  const EntryParts parts = parts_of_entry(a.attrs, number);
  float squares = 0;
  for (int c = thread; c < dim; c += kThreads) {
    Channel channel{a, sequence};
    channel.see(parts.before, c);
    channel.see(parts.own, c);
    channel.add(parts.before, c);
    channel.add(parts.own, c);
    entry[c] = channel.rows / channel.weights;
    squares = fmaf(entry[c], entry[c], squares);
  }
  const float scale =
      1 / sqrtf(block_sum<kThreads>(squares) / static_cast<float>(dim) + a.attrs.eps);
  for (int c = thread; c < dim; c += kThreads) entry[c] *= scale * a.norm[c];
  __syncthreads();
  rotate(a.attrs, a.inv_freq, number * a.attrs.every, entry);
  __syncthreads();
  std::byte* const row = kv_key(a.entries, sequence, 0, number);
  for (int first = thread / 32 * 32; first < dim; first += kThreads) {
    store_piece(a.entries.layout.type, entry, first + thread % 32, dim, row);
  }
}

}  // namespace

Status launch_compress(const CudaCompressArgs& a, CudaStream stream) {
  return launch("compress", compress, dim3(static_cast<unsigned>(a.tokens)), kThreads,
                a.attrs.dim * 4, stream, a);
}

}  // namespace ktx::kernels

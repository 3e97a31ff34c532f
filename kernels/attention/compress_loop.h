// Entries over a vector policy (simd/README.md): the channels of a head at once. Included by
// attention_<isa>.cc only.
#pragma once

#include "kernels/attention/attention_loop.h"
#include "kernels/attention/compress.h"

namespace ktx::kernels {
namespace {

static_assert(kCompressedChannels == 16);

template <class V>
struct CompressSum {
  using F = typename V::F;
  F largest = V::set1(-__builtin_inff()), weights = V::zero(), rows = V::zero();
};

template <class V, KvType type>
KTX_INLINE typename V::F score_of(const CompressArgs& a, int64_t position, int64_t channel) {
  const std::byte* row = value_row(a.kv, a.kv.sequence[a.token], channel / 16, position);
  const float* bias = a.bias + position % a.attrs.every * a.attrs.channels() + channel;
  return V::add(columns<V, type>(row, 0, 16), V::load(bias));
}

template <class V, KvType type>
KTX_INLINE void see(const CompressArgs& a, const EntryPart& part, int64_t channel,
                    CompressSum<V>& sum) {
  for (int64_t p = part.begin; p < part.end; ++p) {
    sum.largest = V::max(sum.largest, score_of<V, type>(a, p, part.channel + channel));
  }
}

template <class V, KvType type>
KTX_INLINE void add_rows(const CompressArgs& a, const EntryPart& part, int64_t channel,
                         CompressSum<V>& sum) {
  const int64_t c = part.channel + channel;
  for (int64_t p = part.begin; p < part.end; ++p) {
    const auto weight = exp16<V>(V::sub(score_of<V, type>(a, p, c), sum.largest));
    const std::byte* row = key_row(a.kv, a.kv.sequence[a.token], c / 16, p);
    sum.weights = V::add(sum.weights, weight);
    sum.rows = V::fma(weight, columns<V, type>(row, 0, 16), sum.rows);
  }
}

template <class V, KvType type>
KTX_INLINE void mean_of_rows(const CompressArgs& a) {
  const int64_t begin = parts_of_entry(a.attrs, a.kv.position[a.token] / a.attrs.every).own.begin;
  const auto share = V::set1(1.0f / static_cast<float>(a.attrs.every));
  for (int64_t c = 0; c < a.attrs.dim; c += 16) {
    auto sum = V::zero();
    for (int64_t p = begin; p < begin + a.attrs.every; ++p) {
      const std::byte* row = key_row(a.kv, a.kv.sequence[a.token], c / 16, p);
      sum = V::add(sum, columns<V, type>(row, 0, 16));
    }
    V::store(a.entry + c, V::mul(sum, share));
  }
}

template <class V, KvType type>
KTX_INLINE void compress_rows(const CompressArgs& a) {
  if (a.bias == nullptr) return mean_of_rows<V, type>(a);
  const EntryParts parts = parts_of_entry(a.attrs, a.kv.position[a.token] / a.attrs.every);
  for (int64_t c = 0; c < a.attrs.dim; c += 16) {
    CompressSum<V> sum;
    see<V, type>(a, parts.before, c, sum);
    see<V, type>(a, parts.own, c, sum);
    add_rows<V, type>(a, parts.before, c, sum);
    add_rows<V, type>(a, parts.own, c, sum);
    V::store(a.entry + c, V::div(sum.rows, sum.weights));
  }
}

template <class V>
void compress(const CompressArgs& a) {
  if (a.kv.layout.type == KvType::F32) return compress_rows<V, KvType::F32>(a);
  compress_rows<V, KvType::F16>(a);
}

}  // namespace
}  // namespace ktx::kernels

// Caches of keys and values for bench-kernels.
#pragma once

#include <memory>
#include <vector>

#include "kernels/cuda/attention/cuda_attention.h"
#include "tests/bench/cuda/cuda_bench.h"

namespace ktx::bench {

// Sequences of equal length in copies of a cache that together exceed the caches of the GPU.
class Cache {
 public:
  static constexpr int64_t kCopies = 8;
  Cache(const kernels::KvLayout& layout, int64_t sequences, int64_t tokens_each, int64_t length) {
    view_.layout = layout;
    view_.block_bytes = layout.slot_bytes();
    view_.table_stride = (length + 63) / 64;
    bytes_ = sequences * view_.table_stride * view_.block_bytes;
    std::vector<int32_t> table, sequence, position;
    for (int64_t i = 0; i < sequences * view_.table_stride; ++i)
      table.push_back(static_cast<int32_t>(i));
    for (int64_t s = 0; s < sequences; ++s) {
      for (int64_t t = 0; t < tokens_each; ++t) {
        sequence.push_back(static_cast<int32_t>(s));
        position.push_back(static_cast<int32_t>(length - tokens_each + t));
      }
    }
    pool_ = std::make_unique<Memory>(bytes_ * kCopies);
    view_.table = numbers(table);
    view_.sequence = numbers(sequence);
    view_.position = numbers(position);
  }
  int64_t bytes() const { return bytes_; }
  kernels::CudaKvView at(int64_t i) const {
    kernels::CudaKvView view = view_;
    view.pool = pool_->as<std::byte>() + i % kCopies * bytes_;
    return view;
  }

 private:
  const int32_t* numbers(const std::vector<int32_t>& from) {
    numbers_.push_back(std::make_unique<Memory>(static_cast<int64_t>(from.size()) * 4));
    check(cudaMemcpy(numbers_.back()->as<void>(), from.data(), from.size() * 4,
                     cudaMemcpyHostToDevice),
          "numbers");
    return numbers_.back()->as<int32_t>();
  }
  kernels::CudaKvView view_;
  int64_t bytes_ = 0;
  std::unique_ptr<Memory> pool_;
  std::vector<std::unique_ptr<Memory>> numbers_;
};

inline AttentionAttrs mla(int32_t heads) {
  AttentionAttrs a;
  a.heads = heads;
  a.key_dim = 576;
  a.value_dim = 512;
  a.value_in_key = 1;
  return a;
}

}  // namespace ktx::bench

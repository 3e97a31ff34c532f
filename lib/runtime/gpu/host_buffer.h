// Host memory for copies to and from a GPU: pinned, or pageable where memory cannot be pinned.
// Copies of the latter are slower but correct.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "lib/runtime/gpu/gpu.h"

namespace ktx::runtime {

class HostBuffer {
 public:
  HostBuffer() = default;
  HostBuffer(Gpu& gpu, uint64_t bytes) : gpu_(&gpu) {
    const auto pinned = gpu.allocate_host(bytes);
    if (!pinned) pageable_ = std::make_unique_for_overwrite<std::byte[]>(bytes);
    data_ = pinned ? *pinned : pageable_.get();
  }
  HostBuffer(HostBuffer&& other) noexcept { *this = std::move(other); }
  HostBuffer& operator=(HostBuffer&& other) noexcept {
    std::swap(gpu_, other.gpu_);
    std::swap(data_, other.data_);
    std::swap(pageable_, other.pageable_);
    return *this;
  }
  ~HostBuffer() {
    if (data_ && !pageable_) gpu_->free_host(data_);
  }

  std::byte* data() const { return data_; }

 private:
  Gpu* gpu_ = nullptr;
  std::byte* data_ = nullptr;
  std::unique_ptr<std::byte[]> pageable_;
};

}  // namespace ktx::runtime

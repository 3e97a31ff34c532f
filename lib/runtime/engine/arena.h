// Zeroed memory for activations, scratch and caches, allocated from the system once.
//
// Pages become resident when they are first written, so a large context costs nothing until it
// is used. Page-aligned. Frees itself.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "lib/support/result.h"

namespace ktx::runtime {

class Arena {
 public:
  Arena() = default;
  // `what` is for the message: "arena: cannot get 3.2 GiB: Cannot allocate memory".
  static Result<Arena> allocate(uint64_t bytes, const char* what);
  Arena(Arena&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  Arena& operator=(Arena&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~Arena();

  std::byte* data() const { return data_; }
  uint64_t size() const { return bytes_; }

 private:
  std::byte* data_ = nullptr;
  uint64_t bytes_ = 0;
};

}  // namespace ktx::runtime

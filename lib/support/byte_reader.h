// A bounds-checked cursor over untrusted little-endian bytes.
//
// A read either succeeds as a whole or fails and leaves the position unchanged. Lengths are
// compared before anything is added, so lengths near 2^64 cannot wrap.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string_view>
#include <type_traits>

namespace ktx {

class ByteReader {
 public:
  explicit ByteReader(std::span<const std::byte> bytes) : bytes_(bytes) {}

  uint64_t position() const { return position_; }
  uint64_t remaining() const { return bytes_.size() - position_; }

  // A number or plain struct, in the machine's (little-endian) byte order.
  template <class T>
  std::optional<T> read() {
    static_assert(std::is_trivially_copyable_v<T>);
    if (remaining() < sizeof(T)) return std::nullopt;
    T value;
    std::memcpy(&value, bytes_.data() + position_, sizeof(T));
    position_ += sizeof(T);
    return value;
  }

  // A view of the next `size` bytes; it lives as long as the underlying bytes.
  std::optional<std::span<const std::byte>> take(uint64_t size) {
    if (remaining() < size) return std::nullopt;
    auto view = bytes_.subspan(position_, size);
    position_ += size;
    return view;
  }

  std::optional<std::string_view> take_text(uint64_t size) {
    auto view = take(size);
    if (!view) return std::nullopt;
    return std::string_view(reinterpret_cast<const char*>(view->data()), view->size());
  }

 private:
  std::span<const std::byte> bytes_;
  uint64_t position_ = 0;
};

// a + b, a * b, and a rounded up to a power-of-two multiple; nothing on overflow.
inline std::optional<uint64_t> checked_add(uint64_t a, uint64_t b) {
  uint64_t sum;
  if (__builtin_add_overflow(a, b, &sum)) return std::nullopt;
  return sum;
}
inline std::optional<uint64_t> checked_mul(uint64_t a, uint64_t b) {
  uint64_t product;
  if (__builtin_mul_overflow(a, b, &product)) return std::nullopt;
  return product;
}
inline std::optional<uint64_t> checked_align(uint64_t a, uint64_t alignment) {
  auto padded = checked_add(a, alignment - 1);
  if (!padded) return std::nullopt;
  return *padded & ~(alignment - 1);
}

}  // namespace ktx

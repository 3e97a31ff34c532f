// XXH3-128 (xxHash) for content addresses and section hashes. Not a defence
// against forgery: a checksum is not a signature.
#pragma once

#include <xxhash.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace ktx {

struct Hash128 {
  uint64_t low = 0;
  uint64_t high = 0;
  bool operator==(const Hash128&) const = default;
  auto operator<=>(const Hash128&) const = default;
};

inline Hash128 hash_bytes(std::span<const std::byte> bytes) {
  const XXH128_hash_t h = XXH3_128bits(bytes.data(), bytes.size());
  return {h.low64, h.high64};
}

// A 64-bit hash of text for tables in memory; never stored.
inline uint64_t hash_text(std::string_view text) {
  return XXH3_64bits(text.data(), text.size());
}

// The same for bytes, continuing from another hash.
inline uint64_t hash_after(uint64_t before, std::span<const std::byte> bytes) {
  return XXH3_64bits_withSeed(bytes.data(), bytes.size(), before);
}

// 32 hexadecimal digits, high half first.
std::string to_hex(const Hash128& hash);

// Streaming form of hash_bytes.
class Hasher {
 public:
  Hasher() : state_(XXH3_createState()) { XXH3_128bits_reset(state_); }
  ~Hasher() { XXH3_freeState(state_); }
  Hasher(const Hasher&) = delete;
  Hasher& operator=(const Hasher&) = delete;
  void add(std::span<const std::byte> bytes) {
    XXH3_128bits_update(state_, bytes.data(), bytes.size());
  }
  Hash128 digest() const {
    const XXH128_hash_t h = XXH3_128bits_digest(state_);
    return {h.low64, h.high64};
  }

 private:
  XXH3_state_t* state_;
};

}  // namespace ktx

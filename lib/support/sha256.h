// SHA-256 (FIPS 180-4), by libcrypto: names bytes for those who do not trust them. XXH3
// (lib/support/hash.h) only finds damage.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "lib/support/result.h"

struct evp_md_ctx_st;  // of libcrypto

namespace ktx {

using Digest256 = std::array<uint8_t, 32>;

class Sha256 {
 public:
  Sha256();
  void add(std::span<const std::byte> bytes);
  // Once, behind the last byte. Fails where libcrypto has no SHA-256.
  Result<Digest256> digest();

 private:
  std::unique_ptr<evp_md_ctx_st, void (*)(evp_md_ctx_st*)> context_;
  bool good_ = false;
};

Result<Digest256> sha256(std::span<const std::byte> bytes);

// 64 hexadecimal digits, as `sha256sum` prints them.
std::string to_hex(const Digest256& digest);

}  // namespace ktx

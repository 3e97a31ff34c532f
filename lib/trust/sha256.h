// SHA-256 (FIPS 180-4), by libcrypto: names a file for those who do not trust it. XXH3
// (lib/support/hash.h) only finds damage.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "lib/support/result.h"

struct evp_md_ctx_st;  // of libcrypto

namespace ktx::trust {

class Sha256 {
 public:
  Sha256();
  void add(std::span<const std::byte> bytes);
  // 64 hexadecimal digits, as `sha256sum` prints; once, behind the last byte. Fails where libcrypto
  // has no SHA-256.
  Result<std::string> hex();

 private:
  std::unique_ptr<evp_md_ctx_st, void (*)(evp_md_ctx_st*)> context_;
  bool good_ = false;
};

Result<std::string> sha256(std::span<const std::byte> bytes);

}  // namespace ktx::trust

#include "lib/support/sha256.h"

#include <fmt/format.h>
#include <openssl/evp.h>

namespace ktx {

Sha256::Sha256() : context_(EVP_MD_CTX_new(), EVP_MD_CTX_free) {
  good_ = context_ && EVP_DigestInit_ex(context_.get(), EVP_sha256(), nullptr) == 1;
}

void Sha256::add(std::span<const std::byte> bytes) {
  good_ = good_ && EVP_DigestUpdate(context_.get(), bytes.data(), bytes.size()) == 1;
}

Result<Digest256> Sha256::digest() {
  Digest256 digest;
  if (!good_ || EVP_DigestFinal_ex(context_.get(), digest.data(), nullptr) != 1) {
    return Error{"libcrypto of this system computes no SHA-256"};
  }
  return digest;
}

Result<Digest256> sha256(std::span<const std::byte> bytes) {
  Sha256 hasher;
  hasher.add(bytes);
  return hasher.digest();
}

std::string to_hex(const Digest256& digest) {
  std::string hex;
  for (const uint8_t byte : digest) hex += fmt::format("{:02x}", byte);
  return hex;
}

}  // namespace ktx

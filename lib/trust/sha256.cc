#include "lib/trust/sha256.h"

#include <fmt/format.h>
#include <openssl/evp.h>

namespace ktx::trust {

Sha256::Sha256() : context_(EVP_MD_CTX_new(), EVP_MD_CTX_free) {
  good_ = context_ && EVP_DigestInit_ex(context_.get(), EVP_sha256(), nullptr) == 1;
}

void Sha256::add(std::span<const std::byte> bytes) {
  good_ = good_ && EVP_DigestUpdate(context_.get(), bytes.data(), bytes.size()) == 1;
}

Result<std::string> Sha256::hex() {
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned int size = 0;
  if (!good_ || EVP_DigestFinal_ex(context_.get(), digest, &size) != 1) {
    return Error{"libcrypto of this system computes no SHA-256"};
  }
  std::string hex;
  for (unsigned int i = 0; i < size; ++i) hex += fmt::format("{:02x}", digest[i]);
  return hex;
}

Result<std::string> sha256(std::span<const std::byte> bytes) {
  Sha256 digest;
  digest.add(bytes);
  return digest.hex();
}

}  // namespace ktx::trust

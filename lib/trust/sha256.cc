#include "lib/trust/sha256.h"

#include <fmt/format.h>
#include <openssl/evp.h>

namespace ktx::trust {

Result<std::string> sha256(std::span<const std::byte> bytes) {
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned int size = 0;
  if (EVP_Digest(bytes.data(), bytes.size(), digest, &size, EVP_sha256(), nullptr) != 1) {
    return Error{"libcrypto of this system computes no SHA-256"};
  }
  std::string hex;
  for (unsigned int i = 0; i < size; ++i) hex += fmt::format("{:02x}", digest[i]);
  return hex;
}

}  // namespace ktx::trust

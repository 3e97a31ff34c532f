#include "lib/trust/strict_base64.h"

#include <openssl/evp.h>

#include <climits>

namespace ktx::trust {

std::string to_base64(std::span<const unsigned char> bytes) {
  std::string text((bytes.size() + 2) / 3 * 4 + 1, '\0');  // a zero behind it
  EVP_EncodeBlock(reinterpret_cast<unsigned char*>(text.data()), bytes.data(),
                  static_cast<int>(bytes.size()));
  text.pop_back();
  return text;
}

std::optional<std::vector<unsigned char>> from_base64(std::string_view text) {
  if (text.size() % 4 != 0 || text.size() > INT_MAX / 2) return std::nullopt;
  std::vector<unsigned char> bytes(text.size() / 4 * 3);
  const int decoded =
      EVP_DecodeBlock(bytes.data(), reinterpret_cast<const unsigned char*>(text.data()),
                      static_cast<int>(text.size()));
  if (decoded != static_cast<int>(bytes.size())) return std::nullopt;
  if (text.ends_with("==")) bytes.pop_back();
  if (text.ends_with('=')) bytes.pop_back();
  if (to_base64(bytes) != text) return std::nullopt;
  return bytes;
}

}  // namespace ktx::trust

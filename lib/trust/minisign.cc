#include "lib/trust/minisign.h"

#include <fmt/format.h>
#include <openssl/evp.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>
#include <vector>

#include "lib/support/strings.h"
#include "lib/trust/strict_base64.h"

namespace ktx::trust {
namespace {

constexpr std::string_view kUntrusted = "untrusted comment:";
constexpr std::string_view kTrusted = "trusted comment: ";
constexpr size_t kSignatureBytes = 64, kIdBytes = 8, kKeyBytes = 32;

using Bytes = std::vector<unsigned char>;

std::optional<Bytes> of_size(std::string_view text, size_t size) {
  std::optional<Bytes> bytes = from_base64(text);
  return bytes && bytes->size() == size ? bytes : std::nullopt;
}

std::vector<std::string_view> lines_of(std::string_view text) {
  std::vector<std::string_view> lines = split(text, '\n');
  for (std::string_view& line : lines) {
    if (line.ends_with('\r')) line.remove_suffix(1);
  }
  while (!lines.empty() && lines.back().empty()) lines.pop_back();
  return lines;
}

bool signed_by(const MinisignKey& key, std::span<const unsigned char> signature,
               std::span<const unsigned char> bytes) {
  const std::unique_ptr<EVP_PKEY, void (*)(EVP_PKEY*)> pkey(
      EVP_PKEY_new_raw_public_key(EVP_PKEY_ED25519, nullptr, key.key.data(), key.key.size()),
      EVP_PKEY_free);
  const std::unique_ptr<EVP_MD_CTX, void (*)(EVP_MD_CTX*)> context(EVP_MD_CTX_new(),
                                                                   EVP_MD_CTX_free);
  return pkey && context &&
         EVP_DigestVerifyInit(context.get(), nullptr, nullptr, nullptr, pkey.get()) == 1 &&
         EVP_DigestVerify(context.get(), signature.data(), signature.size(), bytes.data(),
                          bytes.size()) == 1;
}

// As minisign prints it: the id as a number, highest digit first.
std::string id_text(std::span<const unsigned char> id) {
  std::string text;
  for (size_t i = id.size(); i-- > 0;) text += fmt::format("{:02X}", id[i]);
  return text;
}

}  // namespace

Result<MinisignKey> parse_minisign_key(std::string_view text) {
  const std::vector<std::string_view> lines = lines_of(text);
  const bool commented = lines.size() == 2 && lines[0].starts_with(kUntrusted);
  if (commented && lines[0].find("secret key") != lines[0].npos) {
    return Error{
        "a secret key of minisign; give the public one, which minisign -R -s KEY -p FILE writes"};
  }
  if (lines.size() != 1 && !commented) {
    return Error{
        "not a public key of minisign, which has a comment and a line that begins with RW"};
  }
  const auto bytes = of_size(lines.back(), 2 + kIdBytes + kKeyBytes);
  if (!bytes || (*bytes)[0] != 'E' || (*bytes)[1] != 'd') {
    return Error{"not a public key of minisign: 56 characters that begin with RW are expected"};
  }
  MinisignKey key;
  std::copy_n(bytes->begin() + 2, kIdBytes, key.id.begin());
  std::copy_n(bytes->begin() + 2 + kIdBytes, kKeyBytes, key.key.begin());
  return key;
}

Result<std::string> verify_minisign(const MinisignKey& key, std::span<const std::byte> bytes,
                                    std::string_view signature) {
  const std::vector<std::string_view> lines = lines_of(signature);
  if (lines.size() != 4 || !lines[0].starts_with(kUntrusted) || !lines[2].starts_with(kTrusted)) {
    return Error{"the signature is not minisign's four lines; it is damaged"};
  }
  const auto first = of_size(lines[1], 2 + kIdBytes + kSignatureBytes);
  const auto second = of_size(lines[3], kSignatureBytes);
  if (!first || !second) return Error{"the signature is damaged"};
  if ((*first)[0] != 'E' || (*first)[1] != 'D') {
    return Error{"the signature is of a form that is not accepted; sign with `minisign -S -H`"};
  }
  const std::span<const unsigned char> id(first->data() + 2, kIdBytes);
  if (!std::equal(id.begin(), id.end(), key.id.begin())) {
    return Error{
        fmt::format("signed with key {}, not with the required {}", id_text(id), id_text(key.id))};
  }
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned int size = 0;
  if (EVP_Digest(bytes.data(), bytes.size(), digest, &size, EVP_blake2b512(), nullptr) != 1) {
    return Error{"libcrypto of this system computes no BLAKE2b"};
  }
  const std::span<const unsigned char> of_file(first->data() + 2 + kIdBytes, kSignatureBytes);
  if (!signed_by(key, of_file, {digest, size})) {
    return Error{"the signature is not of this file: one of the two was changed"};
  }
  const std::string_view comment = lines[2].substr(kTrusted.size());
  Bytes both(of_file.begin(), of_file.end());
  both.insert(both.end(), comment.begin(), comment.end());
  if (!signed_by(key, *second, both)) {
    return Error{"the trusted comment of the signature was changed"};
  }
  return std::string(comment);
}

}  // namespace ktx::trust

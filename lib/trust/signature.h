// A detached signature of a file in minisign's form (https://jedisct1.github.io/minisign/), which
// `minisign -Sm model.ktxplan` makes and `minisign -Vm` checks: Ed25519 over the BLAKE2b-512 of the
// file. Both are libcrypto's.
//
//   public key    untrusted comment: ...          signature    untrusted comment: ...
//                 base64(Ed, id, key)                          base64(ED, id, signature)
//                                                              trusted comment: ...
//                                                              base64(signature of both)
//
// Safe for untrusted signatures and files. The older form, over the file itself (Ed), is refused.
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include "lib/support/file_stamp.h"
#include "lib/support/result.h"

namespace ktx::trust {

struct PublicKey {
  std::array<unsigned char, 8> id = {};
  std::array<unsigned char, 32> key = {};
};

// The text of a file of minisign, or its second line alone.
Result<PublicKey> parse_public_key(std::string_view text);
// `file_or_key`: a file's path, or the key itself ("RWQ...").
Result<PublicKey> read_public_key(const std::string& file_or_key);

// The trusted comment. Fails where the signature is of another key, of other bytes, or damaged.
Result<std::string> verify_signature(const PublicKey& key, std::span<const std::byte> bytes,
                                     std::string_view signature);

// Reads all of the file and verifies it by `path`.minisig. What the file was then, for
// check_unchanged() once it has been opened to be used. Messages begin with PATH.
Result<FileStamp> verify_file(const PublicKey& key, const std::string& path);

}  // namespace ktx::trust

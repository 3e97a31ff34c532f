// A detached signature of a file in minisign's form (https://jedisct1.github.io/minisign/), which
// `minisign -Sm model.ktxplan` makes and `minisign -Vm` checks: Ed25519 over the BLAKE2b-512 of the
// file. Both are libcrypto's.
//
//   public key    untrusted comment: ...          signature    untrusted comment: ...
//                 base64(Ed, id, key)                          base64(ED, id, signature)
//                                                              trusted comment: ...
//                                                              base64(signature of both)
//
// Safe for untrusted keys and signatures. The older form, over the file itself (Ed), is refused.
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include "lib/support/result.h"

namespace ktx::trust {

struct MinisignKey {
  std::array<unsigned char, 8> id = {};
  std::array<unsigned char, 32> key = {};
};

// The text of a file of minisign, or its second line alone.
Result<MinisignKey> parse_minisign_key(std::string_view text);

// The trusted comment. Fails where the signature is of another key, of other bytes, or damaged.
Result<std::string> verify_minisign(const MinisignKey& key, std::span<const std::byte> bytes,
                                    std::string_view signature);

}  // namespace ktx::trust

// SHA-256 (FIPS 180-4), by libcrypto: names a file for those who do not trust it. XXH3
// (lib/support/hash.h) only finds damage.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "lib/support/result.h"

namespace ktx::trust {

// 64 hexadecimal digits, as `sha256sum` prints. Fails where libcrypto has no SHA-256.
Result<std::string> sha256(std::span<const std::byte> bytes);

}  // namespace ktx::trust

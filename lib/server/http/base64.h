// Base64 (RFC 4648), as JSON carries bytes.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace ktx::server {

std::string to_base64(std::string_view bytes);
// White space is passed over, the padding may be missing; nothing for what is no base64. Safe for
// any text.
std::optional<std::string> from_base64(std::string_view text);

}  // namespace ktx::server

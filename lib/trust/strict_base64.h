// Base64 (RFC 4648) with one text for one value: padding, and nothing that is passed over. What is
// signed must not be readable in two ways.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace ktx::trust {

std::string to_base64(std::span<const unsigned char> bytes);
// Nothing for any other text, whatever its size.
std::optional<std::vector<unsigned char>> from_base64(std::string_view text);

}  // namespace ktx::trust

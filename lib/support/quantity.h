// Parses numbers with units, as written on command lines and in files.
//
//   parse_count("32k", 1, kMax)  -> 32768       k, m, g: 1024, 1024^2, 1024^3
//   parse_size("1.5 GiB", kMax)  -> 1610612736  k, m, g, t: the same; kb and kib mean k
//
// Case is ignored, and memory is counted in powers of 1024 whatever the unit is called. Returns
// nothing for a text that is malformed (also "1e9", "0x10", "-1", "1,5G") or out of range. Safe
// for untrusted text.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace ktx {

// A whole decimal number within [low, high].
std::optional<int64_t> parse_whole(std::string_view text, int64_t low, int64_t high);

// The same, with a unit that may follow; "1.5k" is whole, "1.3k" is not.
std::optional<int64_t> parse_count(std::string_view text, int64_t low, int64_t high);

// Bytes, from 1 to `high`; fractions are rounded down.
std::optional<int64_t> parse_size(std::string_view text, int64_t high);

// For messages: "such as 8GiB, 512M or 1.5g (units of 1024)".
inline constexpr std::string_view kSizeForms = "such as 8GiB, 512M or 1.5g (units of 1024)";

}  // namespace ktx

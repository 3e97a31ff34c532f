// Small text helpers.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace ktx {

// The candidate nearest to `name` by edit distance, or "" when none is near
// enough to be meant (a third of its length, at least 1, at most 4 edits; two
// neighbours that changed places are one).
std::string nearest_name(std::string_view name, std::span<const std::string> candidates);

// "; did you mean 'x'?" for a message, or "".
std::string did_you_mean(std::string_view name, std::span<const std::string> candidates);

std::vector<std::string_view> split(std::string_view text, char separator);
std::string join(std::span<const std::string> parts, std::string_view separator);
std::string_view trim(std::string_view text);  // ASCII white space

// Text of unknown origin for a message: control bytes and broken UTF-8 become
// \xNN, and anything past `limit` bytes becomes "…".
std::string printable(std::string_view text, size_t limit = 80);

// A path as one word of a shell's command line: itself, or quoted where it must be.
std::string shell_word(std::string_view text);

// "17.3 GiB", "812 B".
std::string human_bytes(uint64_t bytes);

}  // namespace ktx

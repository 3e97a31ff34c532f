// Numbers of experts as text: "0..31,40", both ends included.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace ktx::ir {

inline constexpr int32_t kMostExperts = 65536;  // of a layer, far above any model's

// The text of rising numbers.
std::string expert_numbers_text(std::span<const int32_t> experts);
// Rising, each once; "3", "0..31", "0-31" and lists of these. Nothing where it is something else.
std::optional<std::vector<int32_t>> parse_expert_numbers(std::string_view text);

}  // namespace ktx::ir

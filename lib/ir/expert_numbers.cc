#include "lib/ir/expert_numbers.h"

#include <fmt/format.h>

#include <charconv>
#include <set>

#include "lib/support/strings.h"

namespace ktx::ir {
namespace {

std::optional<int32_t> number(std::string_view text) {
  int32_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool whole = error == std::errc() && end == text.data() + text.size();
  if (text.empty() || !whole || value < 0 || value >= kMostExperts) return std::nullopt;
  return value;
}

}  // namespace

std::string expert_numbers_text(std::span<const int32_t> experts) {
  std::string out;
  for (size_t i = 0; i < experts.size();) {
    size_t last = i;
    while (last + 1 < experts.size() && experts[last + 1] == experts[last] + 1) ++last;
    out += out.empty() ? "" : ",";
    out += last == i ? fmt::format("{}", experts[i])
                     : fmt::format("{}..{}", experts[i], experts[last]);
    i = last + 1;
  }
  return out;
}

std::optional<std::vector<int32_t>> parse_expert_numbers(std::string_view text) {
  std::set<int32_t> experts;
  for (std::string_view part : split(text, ',')) {
    part = trim(part);
    size_t at = part.find(".."), width = 2;
    if (at == std::string_view::npos) at = part.find('-'), width = 1;
    const bool range = at != std::string_view::npos;
    const auto first = number(trim(range ? part.substr(0, at) : part));
    const auto last = range ? number(trim(part.substr(at + width))) : first;
    if (!first || !last || *last < *first) return std::nullopt;
    for (int32_t expert = *first; expert <= *last; ++expert) experts.insert(expert);
  }
  return std::vector<int32_t>(experts.begin(), experts.end());
}

}  // namespace ktx::ir

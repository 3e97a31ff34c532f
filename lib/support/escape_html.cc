#include "lib/support/escape_html.h"

#include <algorithm>
#include <utility>

namespace ktx {

std::string escape_html(std::string_view text) {
  constexpr std::pair<char, std::string_view> kReferences[] = {
      {'&', "&amp;"}, {'<', "&lt;"}, {'>', "&gt;"}, {'\'', "&#39;"}, {'"', "&#34;"}};
  std::string out;
  out.reserve(text.size());
  for (const char c : text) {
    const auto found = std::ranges::find(kReferences, c, &std::pair<char, std::string_view>::first);
    found == std::end(kReferences) ? out += c : out += found->second;
  }
  return out;
}

}  // namespace ktx

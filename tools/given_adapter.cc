#include "tools/given_adapter.h"

#include <charconv>
#include <cmath>

namespace ktx::tools {

GivenAdapter parse_adapter(const std::string& text) {
  const size_t colon = text.rfind(':');
  float scale = 0;
  if (colon == text.npos || colon == 0) return {text};
  const auto [end, error] =
      std::from_chars(text.data() + colon + 1, text.data() + text.size(), scale);
  if (error != std::errc() || end != text.data() + text.size() || !std::isfinite(scale)) {
    return {text};
  }
  return {text.substr(0, colon), scale};
}

}  // namespace ktx::tools

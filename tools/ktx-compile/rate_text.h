// Tokens per second for tables: "12.3", "1240".
#pragma once

#include <fmt/format.h>

#include <string>

namespace ktx::tools {

inline std::string rate_text(double tokens, double seconds) {
  const double rate = tokens / seconds;
  return fmt::format("{:.{}f}", rate, rate < 100 ? 1 : 0);
}

}  // namespace ktx::tools

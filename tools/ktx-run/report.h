// Diagnostics of the commands, on stderr.
#pragma once

#include <fmt/format.h>

#include <string>

namespace ktx::tools {

// Prints "ktx-run: error: MESSAGE" and returns the exit status for a failure.
inline int fail(const std::string& message) {
  fmt::print(stderr, "ktx-run: error: {}\n", message);
  return 1;
}

inline void note(const std::string& message) {
  fmt::print(stderr, "{}\n", message);
}

}  // namespace ktx::tools

// The end of a tool: what it printed has arrived, or its exit status says that it has not.
//
//   ktx-compile --tokenize prompt.txt model.gguf > /dev/full
//   ktx-compile: error: cannot write to standard output: No space left on device
#pragma once

#include <fmt/format.h>

#include <cerrno>
#include <cstdio>
#include <system_error>

namespace ktx::tools {

inline int finish(const char* tool, int status) {
  errno = 0;
  const bool written = std::fflush(stdout) == 0 && !std::ferror(stdout);
  if (written || status != 0) return status;
  const std::error_code cause(errno, std::generic_category());
  fmt::print(stderr, "{}: error: cannot write to standard output{}\n", tool,
             cause ? ": " + cause.message() : "");
  return 1;
}

}  // namespace ktx::tools

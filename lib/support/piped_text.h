// Reads an input text from a file, from standard input, or from a pipe.
//
//   read_piped_text("prompt.txt")   read_piped_text("-")   read_piped_text("/dev/fd/63")
//
// Rule files and models are mapped files (mapped_file.h), which refuse pipes at once. A prompt
// may come from another program and is read to its end.
#pragma once

#include <cstddef>
#include <string>

#include "lib/support/result.h"

namespace ktx {

struct PipedText {
  std::string text;
  bool streamed = false;  // it came from a pipe, a terminal or the like
};

// "-" and "/dev/stdin" are standard input. Fails with "PATH: cannot open: No such file or
// directory" and the like, on a folder, and above `limit_bytes`. An empty text is no failure.
Result<PipedText> read_piped_text(const std::string& path, size_t limit_bytes = 64u << 20);

// "standard input" or the path: as messages name it.
std::string piped_text_name(const std::string& path);

}  // namespace ktx

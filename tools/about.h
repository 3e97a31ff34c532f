// Answers what a tool is asked about itself: --help, --version, --completion SHELL, --man-page.
#pragma once

#include "tools/command_line.h"
#include "tools/option_readers.h"

namespace ktx::tools {

// True when the line asks for one of them and it was printed. `help`: also asked for by a word.
bool print_about(const Tool& tool, const ParsedLine& line, bool help, Mistakes& mistakes);

}  // namespace ktx::tools

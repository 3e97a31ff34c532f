// Formats --help from the table of a tool's options: examples first, then the options in
// groups, in the order of the table, on lines of at most 80 columns.
#pragma once

#include <string>

#include "tools/command_line.h"

namespace ktx::tools {

// The help of a command (an index into tool.commands), or of the whole tool (-1).
std::string help_text(const Tool& tool, int command);

}  // namespace ktx::tools

// The manual page of a tool (roff, section 1), from the table of its options: `ktx-run --man-page`.
#pragma once

#include <string>

#include "tools/command_line.h"

namespace ktx::tools {

std::string man_page(const Tool& tool);

}  // namespace ktx::tools

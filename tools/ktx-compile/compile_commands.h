// The options of ktx-compile as a table, for parsing and help.
#pragma once

#include "tools/command_line.h"
#include "tools/ktx-compile/options.h"
#include "tools/option_readers.h"

namespace ktx::tools {

const Tool& ktx_compile_tool();

// Puts one given option into its field.
void set_option(Options& options, const Given& given, Mistakes& mistakes);

}  // namespace ktx::tools

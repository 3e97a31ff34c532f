// The commands and options of ktx-run as tables, for parsing, help and settings.
#pragma once

#include "tools/command_line.h"
#include "tools/ktx-run/options.h"
#include "tools/option_readers.h"

namespace ktx::tools {

const Tool& ktx_run_tool();

// Puts one given option into its field.
void set_option(Options& options, const Given& given, Mistakes& mistakes);

// "chat".
std::string_view command_name(Command command);

}  // namespace ktx::tools

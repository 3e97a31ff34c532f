// Options of `serve` from a file and from the environment.
//
//   ktx-run serve m.ktxplan --config serve.conf       serve.conf:  port = 8081  # a note
//   KTX_PORT=8082 ktx-run serve m.ktxplan
//
// The command line wins over the environment, which wins over the file.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "lib/support/result.h"

namespace ktx::tools {

// The arguments with what file and environment add; unchanged for other commands.
// Fails on a file that cannot be read and on names that are no option.
Result<std::vector<std::string>> add_serve_settings(int argc, char** argv);

// A line without blanks around it and without its note, which begins with '#' at the start or
// behind a blank, outside of double quotes.
std::string_view without_note(std::string_view line);

}  // namespace ktx::tools

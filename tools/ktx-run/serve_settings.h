// Options of `serve` from a file and from the environment.
//
//   ktx-run serve m.ktxplan --config serve.conf       serve.conf:  port = 8081
//   KTX_PORT=8082 ktx-run serve m.ktxplan
//
// The command line wins over the environment, which wins over the file.
#pragma once

#include <string>
#include <vector>

#include "lib/support/result.h"

namespace ktx::tools {

// The arguments with what file and environment add; unchanged for other commands.
// Fails on a file that cannot be read and on names that are no option.
Result<std::vector<std::string>> add_serve_settings(int argc, char** argv);

}  // namespace ktx::tools

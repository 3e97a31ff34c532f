// Options of `serve` from a file and from the environment.
//
//   ktx-run serve m.ktxplan --config serve.conf       serve.conf:  port = 8081  # a note
//   KTX_SERVE_PORT=8082 ktx-run serve m.ktxplan
//
// Every option of `serve` except --config: max-batch is `max-batch = 8` in the file and
// KTX_SERVE_MAX_BATCH in the environment (KTX_MAX_BATCH, the older name, is read too). The command
// line overrides the environment, which overrides the file.
#pragma once

#include <string>
#include <vector>

#include "lib/support/result.h"
#include "tools/command_line.h"

namespace ktx::tools {

// Adds what file and environment give and the command line does not. Fails on a file that
// cannot be read and on names that are no option.
Status add_serve_settings(ParsedLine& line);

// A line for each variable KTX_SERVE_... of the environment that is no option: it is misspelt, or
// of another version. Those that Kubernetes sets beside a service called ktx-serve are none.
std::vector<std::string> unknown_serve_variables();

}  // namespace ktx::tools

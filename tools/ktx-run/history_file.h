// The lines typed in chat, from one run to the next.
//
// libedit would write the file in place and set its permissions: a ~/.ktx_history that is a
// link to /dev/null (no history, please) would leave the machine's /dev/null unreadable to all
// but root. Here it appears whole, for its owner alone, and only where it is a file.
#pragma once

#include <histedit.h>

#include <string>

#include "lib/support/result.h"

namespace ktx::tools {

// What cannot be read is no history; a pipe is not waited for.
void load_history(History* history, const std::string& path);

Status save_history(History* history, const std::string& path);

}  // namespace ktx::tools

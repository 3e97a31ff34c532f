// Completions for shells, from the table of a tool's options.
//
//   ktx-run --completion bash > ~/.local/share/bash-completion/completions/ktx-run
//   ktx-run chat m.ktxplan --pin <TAB>     auto  off  on
//
// What `value` of an option says is completed: choices with '|', else names of files where it is
// one (FILE, DIR, PATH, OUT.gguf ...).
#pragma once

#include <string>
#include <string_view>

#include "lib/support/result.h"
#include "tools/command_line.h"

namespace ktx::tools {

// For "bash", "zsh" or "fish"; any other name is an error that lists them.
Result<std::string> completion(const Tool& tool, std::string_view shell);

}  // namespace ktx::tools

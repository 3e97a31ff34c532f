// The words of ktx-run's command line: a command and its plan. A mistake is reported with the
// command to type instead.
//
//   ktx-run m.ktxplan       no command given; try: ktx-run chat m.ktxplan
//   ktx-run models/         models/ is a folder without a plan; name the model in it: ktx-run chat
//   ... ktx-run m.ktxplan chat  the command comes first: ktx-run chat m.ktxplan
#pragma once

#include <span>
#include <string>

#include "tools/option_readers.h"

namespace ktx::tools {

// `ktx-run help`, `ktx-run help chat`, `ktx-run chat help`, where no file is called so.
bool wants_help(const ParsedLine& line);

// `args`: the whole line, without the program's name. Files that do not exist or are no plans
// are left to their reader where a command is given.
Mistakes wrong_words(const ParsedLine& line, std::span<const std::string> args);

// Folders of `serve` without a plan, where none can come (--allow-pull).
Mistakes folders_without_plans(std::span<const std::string> sources);

}  // namespace ktx::tools

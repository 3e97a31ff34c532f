// Classifies the files of ktx-compile's command line by their first bytes.
//
//   model.gguf rules.yaml   -> options.model, options.rules
//   models/                 -> "models is a folder; name the GGUF in it: ktx-compile ..."
//   model.ktxplan           -> options.model, options.model_is_plan
#pragma once

#include <span>
#include <string>

#include "tools/ktx-compile/options.h"
#include "tools/option_readers.h"

namespace ktx::tools {

// Sets options.model and options.rules; a file that cannot be opened is left to its reader.
void sort_files(std::span<const std::string> files, Options& options, Mistakes& mistakes);

// "dir/model-00001-of-00003.gguf" -> "dir/model.ktxplan", quoted for a shell; "" gives
// "model.ktxplan".
std::string plan_for(const std::string& model);

}  // namespace ktx::tools

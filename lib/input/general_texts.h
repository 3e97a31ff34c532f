// What a GGUF says of its model in words: name, licence, base models, where it is from.
#pragma once

#include <map>
#include <string>

#include "lib/input/gguf.h"

namespace ktx::input {

// The keys "general.*" without that, texts and numbers as they are, lists of texts with commas
// between; for a plan's provenance (PlanProvenance::general), within its limits: what is longer is
// left out.
std::map<std::string, std::string> general_texts(const GgufFile& gguf, size_t most,
                                                 size_t most_bytes);

}  // namespace ktx::input

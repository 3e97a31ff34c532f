// Which layers of sparse attention have an indexer (DeepSeek-V3.2: all; GLM-5.2: some).
#pragma once

#include <vector>

#include "lib/arch/config_reader.h"

namespace ktx::arch {

// One for each layer; true for the first of those that attend. Empty after a failure, which is in
// the reader's sink.
std::vector<bool> layers_with_indexers(ConfigReader& in, const std::vector<bool>& attends);

}  // namespace ktx::arch

// Which layers of sparse attention have an indexer (DeepSeek-V3.2: all; GLM-5.2: some).
#pragma once

#include <cstddef>
#include <vector>

#include "lib/arch/config_reader.h"

namespace ktx::arch {

// One for each of `layers`; true for the first of them. Empty after a failure, which is in the
// reader's sink.
std::vector<bool> layers_with_indexers(ConfigReader& in, size_t layers);

}  // namespace ktx::arch

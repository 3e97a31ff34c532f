// The adapters of --lora FILE[:SCALE].
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "lib/formats/lora_adapter.h"
#include "lib/support/result.h"

namespace ktx::tools {

using Adapters = std::vector<std::shared_ptr<const LoraAdapter>>;

// In the order given, for EngineOptions::lora. Their names differ.
Result<Adapters> read_adapters(const std::vector<std::string>& given);

// Fails where the served model has the name of one: requests choose both by it.
Status check_names(const Adapters& adapters, const std::string& model,
                   const std::vector<std::string>& aliases);

}  // namespace ktx::tools

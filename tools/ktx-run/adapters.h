// The adapters of --lora FILE[:SCALE].
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "lib/runtime/lora/lora_adapter.h"
#include "lib/support/result.h"

namespace ktx::tools {

using Adapters = std::vector<std::shared_ptr<const runtime::LoraAdapter>>;

// In the order given, for EngineOptions::lora. Their names differ.
Result<Adapters> read_adapters(const std::vector<std::string>& given);

}  // namespace ktx::tools

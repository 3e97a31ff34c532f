// What perplexity and compare print.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "lib/runtime/engine/engine.h"
#include "lib/runtime/quality/divergence.h"
#include "lib/runtime/quality/layer_streams.h"

namespace ktx::tools {

// "fast precision, F16 cache, CPU avx512, 16 threads".
std::string run_text(const runtime::Engine& engine);
nlohmann::ordered_json run_json(const runtime::Engine& engine);

// Ends with a newline.
std::string divergence_text(const runtime::DivergenceSum& sum);
nlohmann::ordered_json divergence_json(const runtime::DivergenceSum& sum);

std::string layers_text(const std::vector<runtime::StreamDifference>& layers);
nlohmann::ordered_json layers_json(const std::vector<runtime::StreamDifference>& layers);

nlohmann::ordered_json estimate_json(const runtime::Estimate& estimate);

}  // namespace ktx::tools

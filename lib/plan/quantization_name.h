// The common name of a plan's weight format: "Q4_K_M", "Q8_0", "BF16".
#pragma once

#include <string>

#include "lib/plan/plan_reader.h"

namespace ktx::plan {

// The mix that the GGUF names (general.file_type), or, where it names none or its weights were
// rounded, the type that most bytes of the weights have. "" of a plan without weights.
std::string quantization_name(const PlanView& plan);

// "Llama 3.1 8B Q4_K_M"; without a name the architecture and the size, "llama 8B Q4_K_M".
std::string model_label(const PlanView& plan);

}  // namespace ktx::plan

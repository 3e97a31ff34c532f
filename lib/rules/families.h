// Finds the model families to which a class name of a rule file belongs: those of
// lib/families, by their module trees, and those that ktx does not compile.
//
//   families_of("ktransformers.models.modeling_deepseek_v3.MoEGate")  // DeepseekV3ForCausalLM
//   families_of("MoEGate")                                            // both DeepSeek families
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace ktx::rules {

// Architectures that have a class of this name; empty for torch classes, operator
// classes and names of nothing.
std::vector<std::string_view> families_of(std::string_view class_name);
// Architectures whose config has this key.
std::vector<std::string_view> families_with_key(std::string_view config_key);
bool is_torch_class(std::string_view class_name);

}  // namespace ktx::rules

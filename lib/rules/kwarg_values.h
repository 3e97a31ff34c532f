// Reads the part of `replace` that comes from KTransformers: the operator class and its keyword
// arguments (operators.h).
#pragma once

#include "lib/rules/rule_values.h"

namespace ktx::rules {

void take_class(RuleValues& values, const YamlNode& node, Replace& replace);

// `key` is the word `kwargs` itself, for its place.
void take_kwargs(RuleValues& values, const YamlNode& key, const YamlNode& node, Replace& replace);

}  // namespace ktx::rules

// Reads the values of `match`: a pattern, ranges of layers, a kind or role.
#pragma once

#include <vector>

#include "lib/rules/rule_values.h"

namespace ktx::rules {

// Compiles match.name, which stands at `node`; without a regex where it must not be used.
void take_pattern(RuleValues& values, const YamlNode& node, Match& match);

// 3, "3..30", "3-30", "..5", "30..", or a list of these.
void take_layers(RuleValues& values, const YamlNode& node, std::vector<LayerRange>& out);

void take_kind(RuleValues& values, const YamlNode& node, Match& match);

}  // namespace ktx::rules

// Reads `experts` of `replace`: which experts of a stack are on another device than the rest; and
// `deferred`: how many of a token's experts are added a layer later.
//
//   experts: {cuda:0: 32}                  # any 32 of each layer: the most used ones of a profile
//   experts: {cuda:0: "0..15, 40", cuda:1: [16, 17]}     # these
//   experts: {cuda:0: {slots: 32}}         # 32 at a time, which follow use (ExpertsOn::guests)
#pragma once

#include "lib/rules/rule_values.h"

namespace ktx::rules {

void take_experts(RuleValues& values, const YamlNode& node, std::vector<ExpertsOn>& out);
void take_deferred(RuleValues& values, const YamlNode& node, std::optional<Located>& text,
                   int32_t& count);

}  // namespace ktx::rules

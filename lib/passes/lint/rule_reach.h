// Finds rules whose requests have no effect, because their modules have no weights.
//
//   - match: {kind: mlp}               takes 32 modules `mlp`, which only hold others
//     replace: {device: cpu}
//   - match: {name: "."}               takes the three linear layers below each
//     replace: {device: cuda:0}
//
// The activations go to the CPU and back in every layer; the weights stay on the GPU.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lib/passes/pass.h"

namespace ktx::passes {

struct Unreached {
  int rule = -1;
  int64_t modules = 0;          // that the rule decides
  std::string first;            // path of the first
  int64_t below = 0;            // modules with weights below them, 0: there are none
  uint64_t below_bytes = 0;     // of these, in the GGUF
  int taker = rules::kNoRule;   // the rule that decides most of those below; kNoRule: none
  bool single_experts = false;  // it decides parts of experts, whose stack another rule decides
};

// After placement. A rule that replaces by an operator of KTransformers is none of these:
// there, blocks and what is in them are replaced by rules of their own.
std::vector<Unreached> unreached_rules(const CompileState& state);

}  // namespace ktx::passes

// Which adapters a text is computed with, and how strongly.
//
//   LoraChoice choice = chosen({{1, 0.5f}, {0, 0}});   // {{1, 0.5}}
//   prefix_owner("key 7", choice);                     // not that of another choice
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace ktx::runtime {

struct LoraUse {
  int32_t adapter = 0;  // index in EngineOptions::lora
  float scale = 1;      // 1: as strong as its file says
  bool operator==(const LoraUse&) const = default;
};

// An adapter of an engine.
struct LoraInfo {
  std::string name, path;
  float scale = 1;  // of texts that choose nothing
};

// Rising by adapter, each once and none with scale 0: texts with equal choices are computed alike.
using LoraChoice = std::vector<LoraUse>;

// If an adapter is listed twice, the last entry counts.
LoraChoice chosen(std::vector<LoraUse> uses);
// Each adapter at its scale, in the order of EngineOptions::lora.
LoraChoice all_at(std::span<const float> scales);

// The owner under which the prefix cache keeps a text: texts share keys and values only with equal
// owner and adapters.
std::string prefix_owner(const std::string& owner, const LoraChoice& choice);

}  // namespace ktx::runtime

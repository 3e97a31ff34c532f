#include "lib/runtime/lora/lora_choice.h"

#include <algorithm>

namespace ktx::runtime {

LoraChoice chosen(std::vector<LoraUse> uses) {
  std::ranges::stable_sort(uses, {}, &LoraUse::adapter);
  LoraChoice choice;
  for (const LoraUse& use : uses) {
    if (!choice.empty() && choice.back().adapter == use.adapter) choice.pop_back();
    choice.push_back(use);
  }
  std::erase_if(choice, [](const LoraUse& use) { return use.scale == 0; });
  return choice;
}

LoraChoice all_at(std::span<const float> scales) {
  std::vector<LoraUse> uses;
  for (const float scale : scales) uses.push_back({static_cast<int32_t>(uses.size()), scale});
  return chosen(std::move(uses));
}

std::string prefix_owner(const std::string& owner, const LoraChoice& choice) {
  if (choice.empty()) return owner;
  // No owner's name has a zero byte.
  std::string name = owner + '\0';
  for (const LoraUse& use : choice) {
    name.append(reinterpret_cast<const char*>(&use.adapter), sizeof(use.adapter));
    name.append(reinterpret_cast<const char*>(&use.scale), sizeof(use.scale));
  }
  return name;
}

}  // namespace ktx::runtime

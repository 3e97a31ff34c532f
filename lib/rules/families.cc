#include "lib/rules/families.h"

#include <fmt/format.h>

#include <algorithm>

#include "lib/rules/operators.h"
#include "lib/support/strings.h"

namespace ktx::rules {
namespace {

constexpr FamilyInfo kFamilies[] = {
#define KTX_FAMILY(architecture, prefix, k_module, t_module, classes, keys) \
  {architecture, prefix, k_module, t_module, classes, keys},
#include "lib/rules/families.def"
#undef KTX_FAMILY
};

std::string short_class(const FamilyInfo& family, std::string_view word) {
  return word.starts_with('=') ? std::string(word.substr(1))
                               : fmt::format("{}{}", family.prefix, word);
}

bool has_word(std::string_view words, std::string_view word) {
  const std::vector<std::string_view> all = split(words, ' ');
  return std::find(all.begin(), all.end(), word) != all.end();
}

bool has_class(const FamilyInfo& family, std::string_view name) {
  const std::string_view last = last_part(name);
  const std::string_view module = last.size() == name.size()
                                      ? std::string_view()
                                      : name.substr(0, name.size() - last.size() - 1);
  const bool module_fits = module.empty() || module == family.k_module ||
                           module == family.t_module || module == "transformers" ||
                           module.starts_with("transformers_modules.");
  if (!module_fits) return false;
  // The Qwen3-MoE tree has the rotary class of Qwen2-MoE in every layer; the class
  // is still Qwen2-MoE's by its module.
  for (std::string_view word : split(family.classes, ' ')) {
    if (short_class(family, word) == last) return true;
  }
  return false;
}

}  // namespace

std::span<const FamilyInfo> all_families() {
  return kFamilies;
}

std::vector<std::string_view> families_of(std::string_view class_name) {
  std::vector<std::string_view> families;
  for (const FamilyInfo& family : kFamilies) {
    if (has_class(family, class_name)) families.push_back(family.architecture);
  }
  return families;
}

std::vector<std::string> family_class_names(bool dotted) {
  std::vector<std::string> names;
  for (const FamilyInfo& family : kFamilies) {
    for (std::string_view word : split(family.classes, ' ')) {
      const std::string last = short_class(family, word);
      const std::string_view module = family.k_module.empty() ? family.t_module : family.k_module;
      names.push_back(dotted ? fmt::format("{}.{}", module, last) : last);
    }
  }
  return names;
}

std::vector<std::string_view> families_with_key(std::string_view config_key) {
  std::vector<std::string_view> families;
  for (const FamilyInfo& family : kFamilies) {
    if (has_word(family.config_keys, config_key)) families.push_back(family.architecture);
  }
  return families;
}

bool is_torch_class(std::string_view class_name) {
  constexpr std::string_view kShort[] = {"Module", "Linear", "Embedding", "ModuleList", "SiLU"};
  return class_name.starts_with("torch.") ||
         std::find(std::begin(kShort), std::end(kShort), class_name) != std::end(kShort);
}

}  // namespace ktx::rules

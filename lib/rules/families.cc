#include "lib/rules/families.h"

#include <fmt/format.h>

#include <algorithm>

#include "lib/families/class_names.h"
#include "lib/rules/operators.h"
#include "lib/support/strings.h"

namespace ktx::rules {
namespace {

struct FamilyInfo {
  std::string_view architecture;     // "DeepseekV3ForCausalLM"
  std::string k_module;              // where KTransformers has its classes; may be empty
  std::string_view t_module;         // where transformers has them; may be empty
  std::vector<std::string> classes;  // without module
  const families::Family* family;
};

std::vector<FamilyInfo> make_families() {
  std::vector<FamilyInfo> all;
  for (const families::Family* family : families::all_families()) {
    all.push_back({family->architecture, family->class_module(), family->module_t,
                   families::own_classes(*family), family});
  }
  return all;
}

const std::vector<FamilyInfo>& known_families() {
  static const std::vector<FamilyInfo> kFamilies = make_families();
  return kFamilies;
}

bool has_class(const FamilyInfo& family, std::string_view name) {
  const std::string_view last = last_part(name);
  const std::string_view module = last.size() == name.size()
                                      ? std::string_view()
                                      : name.substr(0, name.size() - last.size() - 1);
  const bool module_fits = module.empty() || module == family.k_module ||
                           module == family.t_module || module == "transformers" ||
                           module.starts_with("transformers_modules.");
  return module_fits && std::ranges::find(family.classes, last) != family.classes.end();
}

}  // namespace

std::vector<std::string_view> families_of(std::string_view class_name) {
  std::vector<std::string_view> families;
  for (const FamilyInfo& family : known_families()) {
    if (has_class(family, class_name)) families.push_back(family.architecture);
  }
  return families;
}

std::vector<std::string_view> families_with_key(std::string_view config_key) {
  std::vector<std::string_view> families;
  for (const FamilyInfo& family : known_families()) {
    if (family.family->has_config_key(config_key)) families.push_back(family.architecture);
  }
  return families;
}

bool is_torch_class(std::string_view class_name) {
  constexpr std::string_view kShort[] = {"Module", "Linear", "Embedding", "ModuleList", "SiLU"};
  return class_name.starts_with("torch.") ||
         std::find(std::begin(kShort), std::end(kShort), class_name) != std::end(kShort);
}

}  // namespace ktx::rules

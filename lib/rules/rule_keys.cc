#include "lib/rules/rule_keys.h"

#include <fmt/format.h>

#include <algorithm>

#include "lib/formats/dtype.h"
#include "lib/formats/requantized_form.h"
#include "lib/ir/module_graph.h"
#include "lib/rules/operators.h"

namespace ktx::rules {
namespace {

constexpr std::string_view kLevelNames[] = {"a rule file", "`defaults`", "a rule", "`match`",
                                            "`replace`"};
constexpr KeyInfo kKeys[] = {
#define KTX_RULE_KEY(level, key, type, sentence) {Level::level, key, type, sentence},
#include "lib/rules/rule_keys.def"
#undef KTX_RULE_KEY
};
constexpr std::string_view kLayouts[] = {
#define KTX_LAYOUT(id, name, sentence) name,
#include "lib/formats/layout.def"
#undef KTX_LAYOUT
};
constexpr std::string_view kRoles[] = {
#define KTX_ROLE(id, name, kind, sentence) name,
#include "lib/ir/roles.def"
#undef KTX_ROLE
};

}  // namespace

std::string_view describe(Level level) {
  return kLevelNames[static_cast<size_t>(level)];
}

std::span<const KeyInfo> all_keys() {
  return kKeys;
}

std::vector<std::string> key_names(Level level) {
  std::vector<std::string> names;
  for (const KeyInfo& row : kKeys) {
    if (row.level == level) names.emplace_back(row.key);
  }
  return names;
}

std::optional<Level> level_of_key(std::string_view key, Level other_than) {
  for (const KeyInfo& row : kKeys) {
    if (row.key == key && row.level != other_than) return row.level;
  }
  return std::nullopt;
}

std::vector<std::string> kind_names() {
  std::vector<std::string> names;
  for (int i = 0; i <= static_cast<int>(ir::Kind::Expert); ++i) {
    names.emplace_back(ir::name(static_cast<ir::Kind>(i)));
  }
  for (std::string_view role : kRoles) {
    if (std::find(names.begin(), names.end(), role) == names.end()) names.emplace_back(role);
  }
  return names;
}

std::vector<std::string> layout_names() {
  std::vector<std::string> names(std::begin(kLayouts), std::end(kLayouts));
  for (const DTypeInfo& row : all_dtypes()) names.emplace_back(row.name);
  for (const RequantizedForm& form : requantized_forms()) {
    if (std::find(names.begin(), names.end(), form.name) == names.end()) {
      names.emplace_back(form.name);
    }
  }
  return names;
}

bool is_lossy_layout(std::string_view name) {
  return std::find(std::begin(kLayouts), std::end(kLayouts), name) == std::end(kLayouts);
}

}  // namespace ktx::rules

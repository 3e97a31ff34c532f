// The keys and names of the rule language, for the parser's messages and for the
// JSON Schema that editors read.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace ktx::rules {

enum class Level { File, Defaults, Rule, Match, Replace };
std::string_view describe(Level level);  // "`match`", "a rule"

struct KeyInfo {
  Level level;
  std::string_view key;
  std::string_view type;
  std::string_view sentence;
};
std::span<const KeyInfo> all_keys();

std::vector<std::string> key_names(Level level);
// Where else a key stands (a kwarg counts as one of `kwargs`, given as Replace).
std::optional<Level> level_of_key(std::string_view key, Level other_than);

std::vector<std::string> kind_names();    // of `kind`: kinds, then roles
std::vector<std::string> layout_names();  // layouts, then formats (lossy)
bool is_lossy_layout(std::string_view name);

// docs/rules.schema.json: JSON Schema of rule files.
std::string rules_json_schema();

}  // namespace ktx::rules

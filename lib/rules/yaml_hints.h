// Finds the real mistake in a text that is not valid YAML. The reader fails some lines after
// the mistake and reports what it expected there; most mistakes are visible in the text itself:
//
//   -match:                 a dash needs a space after it
//   name: "^model\.norm$"   in double quotes `\.` is no escape
//   name: "^lm_head$        the quote is not closed
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "lib/support/diag.h"

namespace ktx::rules {

struct YamlMistake {
  SourceLoc loc;
  std::string message;
  std::string help;
  std::vector<FixIt> fixes;
};

// The first mistake that can be named, up to the line (from 1) where the reader
// stopped; nothing when there is none.
std::optional<YamlMistake> find_yaml_mistake(std::span<const std::string_view> lines, int stopped,
                                             const std::string& file);

// The last bracket or brace that nothing closes; quotes and comments are left out.
std::optional<SourceLoc> find_open_bracket(std::span<const std::string_view> lines,
                                           const std::string& file);

// How this line is indented and how the lines above are, or "" when it fits them.
std::string indentation_hint(std::span<const std::string_view> lines, int line);

// "name:x" as a value: a key whose colon lacks its space. Its length, or 0.
size_t key_without_space(std::string_view text);

}  // namespace ktx::rules

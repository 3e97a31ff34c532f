#include "lib/rules/pattern_check.h"

#include <fmt/format.h>

namespace ktx::rules {
namespace {

using Kind = PatternFinding::Kind;

// Letters that Python's re knows after a backslash.
constexpr std::string_view kPythonEscapes = "AbBdDsSwWZafnrtvx";

// Groups that PCRE2 has and Python has not, by what follows "(".
constexpr std::string_view kForeignGroups[] = {"*",   "?|", "?R", "?&", "?C", "?^", "?'",
                                               "?P>", "?+", "?0", "?1", "?2", "?3", "?4",
                                               "?5",  "?6", "?7", "?8", "?9"};

bool is_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

bool is_foreign_group(std::string_view rest) {
  for (std::string_view group : kForeignGroups) {
    if (rest.starts_with(group)) return true;
  }
  // (?<name> is PCRE2's; (?<= and (?<! are look-behind.
  return rest.size() > 2 && rest.starts_with("?<") && rest[2] != '=' && rest[2] != '!';
}

// "{,3}": zero to three for Python, five literal characters for PCRE2.
size_t open_repeat_length(std::string_view rest) {
  if (!rest.starts_with("{,")) return 0;
  size_t i = 2;
  while (i < rest.size() && rest[i] >= '0' && rest[i] <= '9') ++i;
  return i < rest.size() && rest[i] == '}' ? i + 1 : 0;
}

}  // namespace

std::vector<PatternFinding> check_pattern(std::string_view pattern) {
  std::vector<PatternFinding> findings;
  bool in_set = false;
  for (size_t i = 0; i < pattern.size(); ++i) {
    const std::string_view rest = pattern.substr(i);
    if (rest[0] == '\\' && rest.size() > 1) {
      const char c = rest[1];
      if (c == '\\') {
        findings.push_back({Kind::DoubledEscape, i, 2, "a literal backslash"});
      } else if (is_letter(c) && kPythonEscapes.find(c) == std::string_view::npos) {
        findings.push_back({Kind::NotPython, i, 2, fmt::format("'\\{}'", c)});
      } else if ((c == 'A' || c == 'Z') && !in_set) {
        findings.push_back({Kind::AnchorByLetter, i, 2, fmt::format("'\\{}'", c)});
      }
      ++i;
    } else if (in_set) {
      if (rest.starts_with("[:")) {
        findings.push_back({Kind::NotPython, i, 2, "a POSIX class '[:'"});
      }
      in_set = rest[0] != ']';
    } else if (rest[0] == '[') {
      in_set = true;
      // A bracket that comes first in a set is a member of it.
      if (rest.starts_with("[^]")) {
        i += 2;
      } else if (rest.starts_with("[]")) {
        ++i;
      }
    } else if (rest[0] == '(' && is_foreign_group(rest.substr(1))) {
      findings.push_back({Kind::NotPython, i, 3, fmt::format("the group '{}'", rest.substr(0, 3))});
    } else if (const size_t length = open_repeat_length(rest)) {
      findings.push_back({Kind::NotPython, i, length,
                          fmt::format("'{}' (write '{{0{}')", rest.substr(0, length),
                                      rest.substr(1, length - 1))});
    }
  }
  return findings;
}

}  // namespace ktx::rules

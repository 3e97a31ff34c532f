// Checks whether a pattern means the same to PCRE2 as to Python's re, for which rule files are
// written, and finds likely mistakes in it.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace ktx::rules {

struct PatternFinding {
  enum class Kind {
    NotPython,       // refused: Python's re reads it differently or not at all
    DoubledEscape,   // a literal backslash, most often a doubled escape
    AnchorByLetter,  // \A or \Z: right here, but taken as letters by other readers
  };
  Kind kind;
  size_t offset = 0;  // in bytes of the pattern
  size_t length = 1;
  std::string text;
};

std::vector<PatternFinding> check_pattern(std::string_view pattern);

}  // namespace ktx::rules

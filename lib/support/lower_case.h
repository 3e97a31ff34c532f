// ASCII letters in lower case; other bytes stay.
#pragma once

#include <string>

namespace ktx {

inline std::string in_lower_case(std::string text) {
  for (char& c : text) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return text;
}

}  // namespace ktx

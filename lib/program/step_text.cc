#include "lib/program/step_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

namespace ktx::program {
namespace {

bool is_plain(unsigned char c) {
  return std::isalnum(c) || c == '.' || c == '_' || c == '-' || c == '/';
}

}  // namespace

std::string quote(std::string_view name) {
  if (!name.empty() && name != "-" && std::all_of(name.begin(), name.end(), is_plain)) {
    return std::string(name);
  }
  std::string out = "\"";
  for (unsigned char c : name) {
    if (c == '"' || c == '\\') {
      out += fmt::format("\\{}", static_cast<char>(c));
    } else if (c <= 0x20 || c == 0x7F) {
      out += fmt::format("\\x{:02x}", c);
    } else {
      out += static_cast<char>(c);
    }
  }
  return out + "\"";
}

}  // namespace ktx::program

#include "tools/ktx-run/path_argument.h"

#include "lib/support/env.h"

namespace ktx::tools {

std::string path_argument(std::string_view text) {
  const bool quoted = text.size() > 2 && (text.front() == '"' || text.front() == '\'') &&
                      text.back() == text.front();
  if (quoted) return std::string(text.substr(1, text.size() - 2));
  const bool at_home = text == "~" || text.substr(0, 2) == "~/";
  const std::string home = env("HOME").value_or("");
  if (!at_home || home.empty()) return std::string(text);
  return home + std::string(text.substr(1));
}

}  // namespace ktx::tools

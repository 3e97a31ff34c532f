#include "tools/about.h"

#include <fmt/format.h>

#include "tools/build_facts.h"
#include "tools/completion.h"
#include "tools/help_text.h"
#include "tools/man_page.h"

namespace ktx::tools {

bool print_about(const Tool& tool, const ParsedLine& line, bool help, Mistakes& mistakes) {
  if (line.help || help) {
    fmt::print("{}", help_text(tool, line.command));
  } else if (line.version) {
    fmt::print("{}", version_text(tool.name));
  } else if (line.man_page) {
    fmt::print("{}", man_page(tool));
  } else if (!line.completion.empty()) {
    const Result<std::string> script = completion(tool, line.completion);
    if (!script) {
      mistakes.push_back(script.error().message);
      return false;
    }
    fmt::print("{}", *script);
  } else {
    return false;
  }
  return true;
}

}  // namespace ktx::tools

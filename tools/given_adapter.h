// A low-rank adapter on a command line: FILE, or FILE:SCALE.
#pragma once

#include <string>

namespace ktx::tools {

struct GivenAdapter {
  std::string path;
  float scale = 1;
};

// What is behind the last colon is the scale if it is a number.
GivenAdapter parse_adapter(const std::string& text);

}  // namespace ktx::tools

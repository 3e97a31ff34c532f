// The form in which a model writes tool calls: a row of tool_styles.def.
//
//   tool_style_of(template_source)   // "hermes", or "" when the form is not known
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace ktx::text {

std::string_view tool_style_of(std::string_view template_source);
std::vector<std::string> tool_style_names();  // each once

}  // namespace ktx::text

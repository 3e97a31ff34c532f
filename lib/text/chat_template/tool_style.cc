#include "lib/text/chat_template/tool_style.h"

#include <algorithm>

namespace ktx::text {
namespace {

struct ToolStyle {
  std::string_view name;
  std::string_view mark;
};

constexpr ToolStyle kStyles[] = {
#define KTX_TOOL_STYLE(name, mark) {name, mark},
#include "lib/text/chat_template/tool_styles.def"
#undef KTX_TOOL_STYLE
};

}  // namespace

std::string_view tool_style_of(std::string_view template_source) {
  for (const ToolStyle& style : kStyles) {
    if (template_source.find(style.mark) != std::string_view::npos) return style.name;
  }
  return "";
}

std::vector<std::string> tool_style_names() {
  std::vector<std::string> names;
  for (const ToolStyle& style : kStyles) {
    const bool again = std::find(names.begin(), names.end(), style.name) != names.end();
    if (!style.name.empty() && !again) names.emplace_back(style.name);
  }
  return names;
}

}  // namespace ktx::text

#include "lib/server/request/write_out_tools.h"

#include <algorithm>

#include "lib/text/answers/tools_as_text.h"

namespace ktx::server {

bool has_tool_messages(const Json& messages) {
  return std::any_of(messages.begin(), messages.end(), [](const Json& message) {
    return message.contains("tool_calls") || string_or(message, "role", "") == "tool";
  });
}

void write_out_tools(const ServedModel& model, bool forced, Json& messages, Json& tools) {
  const text::ToolCallFormat format = model.tool_format;
  const bool generic = format == text::ToolCallFormat::Generic;
  if (!model.shows_tools && has_tool_messages(messages)) {
    text::write_out_calls(messages,
                          text::has_text_form(format) ? format : text::ToolCallFormat::Generic);
  }
  if (tools.is_null() || (model.shows_tools && !generic)) return;
  text::add_system_text(messages, text::tools_text(tools, format, !model.shows_tools, forced));
  if (!model.shows_tools) tools = nullptr;
}

}  // namespace ktx::server

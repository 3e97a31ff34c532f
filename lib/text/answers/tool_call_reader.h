// Reads one tool call at the beginning of a text that may still grow; for ToolCallParser.
//
//   read_tool_call(Hermes, "<tool_call>{\"name\": ", …)       -> More
//   read_tool_call(Hermes, "<tool_call>{\"name\": \"f\"}</tool_call> x", …)  -> Call, 36 bytes
//   read_tool_call(Hermes, "<tool_call>oh no", …)             -> No
//
// The result depends on the text alone: No for a text means No for every longer one, and a Call
// stays the same Call. Whatever a More reports of the call, the More of a longer text reports
// too.
#pragma once

#include <span>

#include "lib/text/answers/tool_calls.h"

namespace ktx::text {

inline constexpr size_t kMaxToolCallBytes = size_t{1} << 18;
inline constexpr size_t kMaxToolNameBytes = 256;

enum class CallState { Call, More, No };

struct CallRead {
  CallState state = CallState::No;
  size_t bytes = 0;  // of a Call
  std::vector<ToolCall> calls;
  // Once it is certain: the name, and the arguments so far, as a place in the JSON
  // of the scan where they begin, or (XML) as what they are going to begin with.
  bool begun = false;
  std::string name, id;
  size_t json_at = std::string::npos;
  std::string arguments;
};

// The markers that a call (or a section of calls) begins with, and those that may
// stand behind calls and say nothing.
std::span<const std::string_view> call_openers(ToolCallFormat format);
std::span<const std::string_view> call_trailers(ToolCallFormat format);
// What ends a call of this form, whatever stands in it; "": nothing does.
std::string_view call_end(ToolCallFormat format);

// `scan` is kept by the caller between texts that grow, and fresh for a new call.
// `ended`: the text will not grow.
CallRead read_tool_call(ToolCallFormat format, std::string_view text, bool ended,
                        std::span<const OfferedTool> tools, CallScan& scan);

}  // namespace ktx::text

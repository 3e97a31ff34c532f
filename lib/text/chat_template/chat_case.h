// Renders a conversation written as JSON, for `ktx-compile --render-chat CASE.json`.
//
//   {"messages": [{"role": "user", "content": "Hi"}],
//    "tools": [...],            optional: none when absent
//    "gen": false,              optional: true when absent
//    "extra": {"enable_thinking": false}}       optional
//
// An unknown key is an error, and so is a value of another type.
#pragma once

#include <string>
#include <string_view>

#include "lib/support/result.h"
#include "lib/text/chat_template/chat_template.h"

namespace ktx::text {

// `base` brings bos_token, eos_token, now, limits and extra variables, which win over
// the case's; the rest is the case's.
Result<std::string> render_chat_case(const ChatTemplate& chat, std::string_view case_json,
                                     const RenderInput& base);

// The case as input; for callers that render more than once.
Result<RenderInput> parse_chat_case(std::string_view case_json, const RenderInput& base);

}  // namespace ktx::text

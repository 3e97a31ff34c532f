// Tools for a model whose chat template knows none: a system message describes them and the form
// of calls, and the calls and results of a conversation become plain messages.
//
//   {"role": "assistant", "tool_calls": [f {"a": 1}]}  ->  {"role": "assistant", "content":
//                                                          "{\"tool_call\": {\"name\": "f", …}}"}
//   {"role": "tool", "content": "7"}                   ->  {"role": "user", "content":
//                                                          "The result of f:\n7"}
//
// Messages and tools are OpenAI's, checked, with content as text. Safe for any text in them.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "lib/text/answers/tool_calls.h"

namespace ktx::text {

// The forms that a text can describe; the others need a template of their own.
bool has_text_form(ToolCallFormat format);
std::vector<std::string> text_form_names();

// A call as a model writes it in this form. `arguments`: JSON, an object or its text.
std::string written_call(ToolCallFormat format, std::string_view name,
                         const nlohmann::ordered_json& arguments);

// What the model reads of tools: the tools themselves, where the template does not list them
// (`list`), and how to call one. `forced`: it must, as bare JSON.
std::string tools_text(const nlohmann::ordered_json& tools, ToolCallFormat format, bool list,
                       bool forced);

// Behind the text of a first system message, or as one of its own.
void add_system_text(nlohmann::ordered_json& messages, const std::string& text);

// Calls become the text of their message, results a message of the user, together with those
// beside them and with what the user says next.
void write_out_calls(nlohmann::ordered_json& messages, ToolCallFormat format);

}  // namespace ktx::text

// Readers of one tool call, one per format, and the markers of each format. The table of
// formats is in tool_call_reader.cc.
//
// A reader starts before the call and leaves `in` behind it. It fills read.calls; for an
// incomplete call it fills what is known so far (CallRead).
#pragma once

#include <span>
#include <string_view>

#include "lib/text/answers/call_cursor.h"

namespace ktx::text {

inline constexpr std::string_view kCallsBegin = "<｜tool▁calls▁begin｜>";
inline constexpr std::string_view kCallsEnd = "<｜tool▁calls▁end｜>";
inline constexpr std::string_view kCallBegin = "<｜tool▁call▁begin｜>";
inline constexpr std::string_view kCallSeparator = "<｜tool▁sep｜>";
inline constexpr std::string_view kCallEnd = "<｜tool▁call▁end｜>";
inline constexpr std::string_view kPythonTag = "<|python_tag|>";
inline constexpr std::string_view kToolCalls = "[TOOL_CALLS]";
inline constexpr std::string_view kNemotronCalls = "<TOOLCALL>";
inline constexpr std::string_view kNemotronCallsEnd = "</TOOLCALL>";
inline constexpr std::string_view kPythonCalls = "<|tool_call_start|>";
inline constexpr std::string_view kPythonCallsEnd = "<|tool_call_end|>";
inline constexpr std::string_view kMistralArguments = "[ARGS]";
inline constexpr std::string_view kKimiBegin = "<|tool_calls_section_begin|>";
inline constexpr std::string_view kKimiEnd = "<|tool_calls_section_end|>";
inline constexpr std::string_view kKimiCall = "<|tool_call_begin|>";
inline constexpr std::string_view kKimiArguments = "<|tool_call_argument_begin|>";
inline constexpr std::string_view kKimiCallEnd = "<|tool_call_end|>";

inline constexpr std::string_view kFunction = "<function=";
inline constexpr std::string_view kSeedCall = "<seed:tool_call>";  // Seed-OSS's <tool_call>
inline constexpr std::string_view kParameter = "<parameter=";

// A section of calls, each with its name and its parameters in attributes.
struct InvokeTags {
  std::string_view section, section_end, invoke, invoke_end, parameter, parameter_end;
  std::string_view later_section = {}, later_section_end = {};  // of newer models; empty: the same
  std::string_view tag_end = ">", invoke_name = "name", parameter_name = "name";
  std::string_view json = {}, json_end = {};  // a call may have its arguments in such a block
};
inline constexpr InvokeTags kMiniMaxTags = {
    "<minimax:tool_call>", "</minimax:tool_call>", "<invoke ",
    "</invoke>",           "<parameter ",          "</parameter>"};
inline constexpr InvokeTags kDsmlTags = {"<｜DSML｜function_calls>", "</｜DSML｜function_calls>",
                                         "<｜DSML｜invoke ",         "</｜DSML｜invoke>",
                                         "<｜DSML｜parameter ",      "</｜DSML｜parameter>",
                                         "<｜DSML｜tool_calls>",     "</｜DSML｜tool_calls>"};

inline constexpr InvokeTags kAtemTags = {"<atem:function_calls>", "</atem:function_calls>",
                                         "<atem:invoke ",         "</atem:invoke>",
                                         "<atem:parameter ",      "</atem:parameter>"};

// In attributes, & and " are escaped.
inline constexpr InvokeTags kKimiK3Tags = {
    .section = "<|open|>tools<|sep|>",
    .section_end = "<|close|>tools<|sep|>",
    .invoke = "<|open|>call ",
    .invoke_end = "<|close|>call<|sep|>",
    .parameter = "<|open|>argument ",
    .parameter_end = "<|close|>argument<|sep|>",
    .tag_end = "<|sep|>",
    .invoke_name = "tool",
    .parameter_name = "key",
    .json = "<|open|>json",
    .json_end = "<|close|>json<|sep|>",
};

inline constexpr std::string_view kKimiK3End = "<|close|>message<|sep|>";

inline constexpr std::string_view kGemmaCall = "<|tool_call>call:";
inline constexpr std::string_view kGemmaCallEnd = "<tool_call|>";
inline constexpr std::string_view kGemmaQuote = "<|\"|>";
inline constexpr std::string_view kGemmaResponse = "<|tool_response>";

using CallReader = CallState (*)(CallCursor& in, std::span<const OfferedTool> tools,
                                 CallRead& read);

// call_formats_json.cc: the arguments are a JSON object.
CallState read_hermes(CallCursor& in, std::span<const OfferedTool> tools, CallRead& read);
CallState read_llama3(CallCursor& in, std::span<const OfferedTool> tools, CallRead& read);
CallState read_mistral(CallCursor& in, std::span<const OfferedTool> tools, CallRead& read);
CallState read_nemotron(CallCursor& in, std::span<const OfferedTool> tools, CallRead& read);
CallState read_deepseek(CallCursor& in, std::span<const OfferedTool> tools, CallRead& read);
CallState read_kimi(CallCursor& in, std::span<const OfferedTool> tools, CallRead& read);

// call_formats_xml.cc: each argument in tags; its schema says whether it is a text.
CallState read_glm(CallCursor& in, std::span<const OfferedTool> tools, CallRead& read);
CallState read_qwen_coder(CallCursor& in, std::span<const OfferedTool> tools, CallRead& read);
CallState read_minimax(CallCursor& in, std::span<const OfferedTool> tools, CallRead& read);
CallState read_dsml(CallCursor& in, std::span<const OfferedTool> tools, CallRead& read);
CallState read_atem(CallCursor& in, std::span<const OfferedTool> tools, CallRead& read);
CallState read_kimi_k3(CallCursor& in, std::span<const OfferedTool> tools, CallRead& read);

// {"name": …, "arguments" or "parameters": …, "id": …}, or a list of such; as OpenAI's clients
// write it, within "function".
CallState add_calls(const nlohmann::ordered_json& json, CallRead& read);

// call_formats_python.cc: Python calls.
CallState read_python(CallCursor& in, std::span<const OfferedTool> tools, CallRead& read);

// call_formats_gemma.cc: JSON with bare keys and quotes of its own.
CallState read_gemma(CallCursor& in, std::span<const OfferedTool> tools, CallRead& read);

}  // namespace ktx::text

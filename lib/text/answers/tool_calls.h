// Parses tool calls in a streamed answer.
//
//   ToolCallParser parser(ToolCallFormat::Hermes);
//   parser.add("I look it up.\n<tool_call>\n{\"name\": \"wea")   -> text "I look it up."
//   parser.add("ther\", \"arguments\": {\"city\": \"Paris\"}}\n</tool_call>")
//                                       -> one call: weather {"city": "Paris"}
//
// The form is that of the model's chat template:
//
//   Hermes    <tool_call>{"name": n, "arguments": {…}}</tool_call>     (Qwen too)
//   Llama3    {"name": n, "parameters": {…}}   at the begin, or behind <|python_tag|>
//   Mistral   [TOOL_CALLS][{"name": n, "arguments": {…}, "id": i}, …]
//             [TOOL_CALLS]n[ARGS]{…}
//   DeepSeek  <｜tool▁calls▁begin｜><｜tool▁call▁begin｜>n<｜tool▁sep｜>{…}<｜tool▁call▁end｜>…
//             (R1: function<｜tool▁sep｜>n, and the arguments in a ```json block)
//   Kimi      <|tool_calls_section_begin|><|tool_call_begin|>functions.n:0
//             <|tool_call_argument_begin|>{…}<|tool_call_end|>…
//   Glm       <tool_call>n<arg_key>k</arg_key><arg_value>v</arg_value>…</tool_call>
//   QwenCoder <tool_call><function=n><parameter=k>v</parameter>…</function></tool_call>
//   MiniMax   <minimax:tool_call><invoke name="n"><parameter name="k">v</parameter>…</invoke>…
//   Dsml      <｜DSML｜function_calls><｜DSML｜invoke name="n"><｜DSML｜parameter name="k"
//             string="true">v</｜DSML｜parameter>…</｜DSML｜invoke>…     (DeepSeek-V3.2)
//   Gemma     <|tool_call>call:n{k:<|"|>v<|"|>,k:[1,true]}<tool_call|>     (Gemma 4)
//   Harmony   <|channel|>commentary to=functions.n<|message|>{…}<|call|>     (harmony.h)
//
// By default a call is emitted as a whole, with its last byte. So a text that turns out not to
// be a call (no JSON, no name, arguments that are not an object, more than 256 KiB) is emitted
// as text. With `stream` a call is emitted in deltas: it counts as a call as soon as its name
// and the beginning of its arguments have arrived (XML: the name), and one that breaks off
// later stays incomplete. In both modes half a marker is never shown, the result does not
// depend on how the text is split, and white space around calls is dropped.
//
// The XML forms do not distinguish 42 from "42": the schema of the parameter does. Without a
// schema, a value that parses as JSON is JSON.
//
// Markers are control tokens in some vocabularies: detokenise with `special`.
// Does not read the Python calls of Llama's built-in tools (text).
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace ktx::text {

enum class ToolCallFormat {
  None,
  Hermes,
  Llama3,
  Mistral,
  DeepSeek,
  Kimi,
  Glm,
  QwenCoder,
  MiniMax,
  Dsml,
  Gemma,
  Harmony,  // read by HarmonyParser; ToolCallParser passes it on as text
};

std::string_view format_name(ToolCallFormat format);  // "hermes"; "none"
std::vector<std::string> tool_call_format_names();    // each once

// From the markers that the template writes; None when it knows no tools.
ToolCallFormat detect_tool_call_format(std::string_view chat_template);

struct ToolCall {
  std::string name;
  std::string arguments;  // JSON text of an object
  std::string id;         // where the model gives one (Mistral, Kimi), else ""
};

// What of a call has come: its name and id with the first piece, then its arguments.
struct ToolCallPiece {
  bool begins = false;
  std::string name, id;
  std::string arguments;
};

struct ToolCallDelta {
  std::string text;
  std::vector<ToolCall> calls;        // their place in `text` is not kept
  std::vector<ToolCallPiece> pieces;  // instead of them with `stream`
};

// A tool that was offered. `text_parameters` are strings by their schema, so that a value
// of theirs is never read as JSON.
struct OfferedTool {
  std::string name;
  std::vector<std::string> text_parameters;
};

struct CallRead;

// How far the end of a JSON value was searched for, so that no byte is read twice.
struct JsonScan {
  size_t at = 0;
  int depth = 0;
  bool in_string = false;
  bool escaped = false;
};

// One stream; not thread-safe, copyable. Safe for any bytes. A bare JSON object of Llama3
// is a call only with the name of an offered tool (any name without them), since it may as
// well be the answer.
class ToolCallParser {
 public:
  explicit ToolCallParser(ToolCallFormat format, std::vector<OfferedTool> tools = {},
                          bool stream = false)
      : format_(format), tools_(std::move(tools)), stream_(stream) {}

  ToolCallDelta add(std::string_view text);
  // What is held back, when no more text comes; a last closing marker may be missing.
  ToolCallDelta finish();

 private:
  enum class Step { Again, Wait };
  Step advance(ToolCallDelta& delta, bool ended);
  Step find_opener(ToolCallDelta& delta, bool ended);
  Step read_call(ToolCallDelta& delta, bool ended);
  Step leave_calls();
  void show(ToolCallDelta& delta, size_t bytes);
  size_t stream_call(ToolCallDelta& delta, const CallRead& read);

  ToolCallFormat format_;
  std::vector<OfferedTool> tools_;
  bool stream_;
  std::string held_;    // not yet shown: white space, then maybe a call
  size_t call_at_ = 0;  // where in held_ the call begins that is being read
  bool in_call_ = false;
  bool behind_call_ = false;  // only white space and markers since the last call
  bool at_begin_ = true;      // Llama3: a bare object counts as a call here
  JsonScan scan_;
  // Of the call that is being streamed.
  bool begun_ = false;
  size_t arguments_at_ = 0;    // JSON: where in held_, from call_at_
  size_t arguments_sent_ = 0;  // bytes
  JsonScan arguments_scan_;
};

}  // namespace ktx::text

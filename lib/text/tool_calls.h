// Tool calls in what a model says, as it streams.
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
//
// A call comes out whole, when its last byte is there: so what turns out not to be
// one (no JSON, no name, arguments that are no object, more than 256 KiB) comes out as
// the text it is, and no half of a marker is ever shown. The outcome does not depend
// on how the text is cut into pieces. White space around calls is dropped.
//
// Markers are control tokens in some vocabularies: detokenise with `special`.
// Does not read the Python calls of Llama's built-in tools (text), nor XML forms.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace ktx::text {

enum class ToolCallFormat { None, Hermes, Llama3, Mistral, DeepSeek, Kimi };

std::string_view format_name(ToolCallFormat format);  // "hermes"; "none"

// From the markers that the template writes; None when it knows no tools.
ToolCallFormat detect_tool_call_format(std::string_view chat_template);

struct ToolCall {
  std::string name;
  std::string arguments;  // JSON text of an object
  std::string id;         // where the model gives one (Mistral, Kimi), else ""
};

struct ToolCallDelta {
  std::string text;
  std::vector<ToolCall> calls;  // their place in `text` is not kept
};

// How far the end of a JSON value was searched for, so that no byte is read twice.
struct JsonScan {
  size_t at = 0;
  int depth = 0;
  bool in_string = false;
  bool escaped = false;
};

// One stream; not thread-safe, copyable. Safe for any bytes. `names` are the tools
// that were offered: a bare JSON object of Llama3 is a call only with one of them
// (any name without them), since it may as well be the answer.
class ToolCallParser {
 public:
  explicit ToolCallParser(ToolCallFormat format, std::vector<std::string> names = {})
      : format_(format), names_(std::move(names)) {}

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

  ToolCallFormat format_;
  std::vector<std::string> names_;
  std::string held_;    // not yet shown: white space, then maybe a call
  size_t call_at_ = 0;  // where in held_ the call begins that is being read
  bool in_call_ = false;
  bool behind_call_ = false;  // only white space and markers since the last call
  bool at_begin_ = true;      // Llama3: a bare object counts as a call here
  JsonScan scan_;
};

}  // namespace ktx::text

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
//             (Seed-OSS: <seed:tool_call>)
//   MiniMax   <minimax:tool_call><invoke name="n"><parameter name="k">v</parameter>…</invoke>…
//   Dsml      <｜DSML｜function_calls><｜DSML｜invoke name="n"><｜DSML｜parameter name="k"
//             string="true">v</｜DSML｜parameter>…</｜DSML｜invoke>…     (DeepSeek-V3.2; V4 has
//             tool_calls instead of function_calls)
//   Atem      <atem:function_calls><atem:invoke name="n"><atem:parameter name="k">v…
//             (Muse Glimmer)
//   KimiK3    <|open|>tools<|sep|><|open|>call tool="n" index="1"<|sep|><|open|>argument key="k"
//             type="string"<|sep|>v<|close|>argument<|sep|>…<|close|>call<|sep|>…
//             (or <|open|>json type="object"<|sep|>{…}<|close|>json<|sep|> for all arguments)
//   Gemma     <|tool_call>call:n{k:<|"|>v<|"|>,k:[1,true]}<tool_call|>     (Gemma 4)
//   Nemotron  <TOOLCALL>[{"name": n, "arguments": {…}}, …]</TOOLCALL>     (Nemotron Nano 2)
//   Python    <|tool_call_start|>[n(k="v", k=[1, True]), …]<|tool_call_end|>     (LFM2)
//   Generic   {"tool_call": {"name": n, "arguments": {…}}}                (generic_answer.h)
//   Harmony   <|channel|>commentary to=functions.n<|message|>{…}<|call|>     (harmony.h)
//
// A call counts as one as soon as its name and the beginning of its arguments have arrived (XML:
// the name; Kimi-K3: the name and the tag behind it). With `stream` it is emitted in deltas from
// then on, else as a whole at its end; both give the same. A text that turns out not to be a call
// before that (no JSON, no name) is emitted as text. A call that breaks off, or goes on as no JSON
// does, keeps the arguments it has, and what is left of it is dropped. JSON is mended where only
// one reading is possible (call_json.h), and a missing closing tag is where the next tag stands
// (ValueTags); empty or null arguments are
// {}. No marker is ever shown, nor half of one, also where it comes twice; the result does not
// depend on how the text is split. White space between two texts is kept, also around a call;
// around calls alone it is dropped.
//
// The XML forms do not distinguish 42 from "42": the schema of the parameter does. Without a
// schema, a value that parses as JSON is JSON, and Python's True, False, None and lists are, too.
//
// Markers are control tokens in some vocabularies: detokenise with `special`.
// Does not read the Python calls of Llama's built-in tools (text).
//
// Where a format is asked for (`or_format`), an answer is a call or follows it: calls stand at the
// begin, a marker within JSON is a part of it, and text around calls is dropped.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lib/text/answers/call_json.h"

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
  Atem,
  Gemma,
  Nemotron,
  Python,
  KimiK3,
  Harmony,  // read by HarmonyParser; ToolCallParser passes it on as text
  Generic,  // of models whose template has none: GenericAnswer; likewise
};

std::string_view format_name(ToolCallFormat format);  // "hermes"; "none"
std::optional<ToolCallFormat> format_from_name(std::string_view name);
std::vector<std::string> tool_call_format_names();  // each once, without "none"

// From the markers that the template writes; None when it knows no tools.
ToolCallFormat detect_tool_call_format(std::string_view chat_template);

struct ToolCall {
  std::string name;
  std::string arguments;  // JSON text of an object
  std::string id;         // where the model gives one (Mistral, Kimi), else ""
};

// A part of a call that has come: its name and id with the first piece, then its arguments.
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
// of theirs is never read as JSON; of `nullable_texts` null and None are null all the same.
struct OfferedTool {
  std::string name;
  std::vector<std::string> text_parameters;
  std::vector<std::string> nullable_texts = {};
};

struct CallRead;

// How far a call was read, so that no byte of its JSON and of its long values is read twice.
struct CallScan {
  size_t json_at = std::string::npos;  // in the call, where `json` begins
  CallJson json;
  size_t read = 0;        // XML: bytes
  bool in_value = false;  // and whether they end in one
};

// How far an object in strict JSON was followed, up to its closing bracket.
struct ObjectScan {
  size_t at = 0;
  JsonPlace place;
  bool whole = false;
};

// One stream; not thread-safe, copyable. Safe for any bytes. A bare JSON object of Llama3
// is a call only with the name of an offered tool (any name without them), since it may as
// well be the answer.
class ToolCallParser {
 public:
  explicit ToolCallParser(ToolCallFormat format, std::vector<OfferedTool> tools = {},
                          bool stream = false, bool or_format = false)
      : format_(format), tools_(std::move(tools)), stream_(stream), or_format_(or_format) {}

  ToolCallDelta add(std::string_view text);
  // What is held back, when no more text comes; a last closing marker may be missing. `cut`: the
  // model would have said more, so that nothing is mended, and half a marker is dropped.
  ToolCallDelta finish(bool cut = false);

 private:
  enum class Step { Again, Wait };
  enum class End { Open, Ended, Cut };  // of the text
  enum class Place { Text, Call, BrokenCall, BehindCall };
  Step advance(ToolCallDelta& delta, End end);
  Step find_opener(ToolCallDelta& delta, End end);
  Step read_call(ToolCallDelta& delta, End end);
  Step leave_broken_call(End end);
  Step leave_calls();
  void begin_call(size_t at);
  void show(ToolCallDelta& delta, size_t bytes);
  void say(ToolCallDelta& delta, ToolCallPiece piece);
  void say_more(ToolCallDelta& delta, const CallRead& read);
  void end_call(ToolCallDelta& delta);

  ToolCallFormat format_;
  std::vector<OfferedTool> tools_;
  bool stream_;
  bool or_format_;
  bool calls_alone_ = false;  // with or_format: the answer has begun with a call
  std::string held_;          // not yet shown: white space, then maybe a call
  std::string gap_;           // white space around calls since the last text
  bool has_shown_ = false;    // a text, between which and the next one the gap stays
  Place place_ = Place::Text;
  size_t call_at_ = 0;    // where in held_ the call begins that is being read
  bool at_begin_ = true;  // Llama3: a bare object counts as a call here
  bool in_tags_ = false;  // behind a call whose closing tag has not come
  CallScan scan_;
  // The call that is being read.
  bool begun_ = false;
  ToolCall call_;            // as far as it was said
  size_t arguments_at_ = 0;  // JSON: where in that of the scan
  ObjectScan arguments_scan_;
};

}  // namespace ktx::text

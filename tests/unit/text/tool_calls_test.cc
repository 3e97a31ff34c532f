#include "lib/text/answers/tool_calls.h"

#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "tests/support/cpu_time.h"
#include "tests/support/paths.h"
#include "tests/unit/text/stream_pieces.h"

namespace ktx::text {
namespace {

// "text|name {arguments} #id|…": the outcome of a parse in one line.
std::string describe(const std::string& text, const std::vector<ToolCall>& calls) {
  std::string out = text;
  for (const ToolCall& call : calls) {
    out += "|" + call.name + " " + call.arguments;
    if (!call.id.empty()) out += " #" + call.id;
  }
  return out;
}

std::string parse(ToolCallFormat format, const std::vector<std::string>& pieces,
                  const std::vector<OfferedTool>& tools = {}, bool or_format = false) {
  ToolCallParser parser(format, tools, false, or_format);
  std::string text;
  std::vector<ToolCall> calls;
  const auto take = [&](ToolCallDelta delta) {
    text += delta.text;
    for (ToolCall& call : delta.calls) calls.push_back(std::move(call));
  };
  for (const std::string& piece : pieces) take(parser.add(piece));
  take(parser.finish());
  return describe(text, calls);
}

const std::vector<OfferedTool> kTools = {{"f", {"s", "n"}, {"n"}}, {"g", {}}};

// The same of a parser that streams: a call's arguments are its pieces put together.
std::string stream(ToolCallFormat format, const std::vector<std::string>& pieces,
                   const std::vector<OfferedTool>& tools = {}) {
  ToolCallParser parser(format, tools, true);
  std::string text;
  std::vector<ToolCall> calls;
  const auto take = [&](const ToolCallDelta& delta) {
    text += delta.text;
    EXPECT_TRUE(delta.calls.empty());
    for (const ToolCallPiece& piece : delta.pieces) {
      if (piece.begins) calls.push_back({piece.name, "", piece.id});
      calls.back().arguments += piece.arguments;
    }
  };
  for (const std::string& piece : pieces) take(parser.add(piece));
  take(parser.finish());
  return describe(text, calls);
}

struct Case {
  ToolCallFormat format;
  const char* text;
  const char* want;
};

using enum ToolCallFormat;
const Case kCases[] = {
    {None, "<tool_call>{\"name\": \"f\"}</tool_call>", "<tool_call>{\"name\": \"f\"}</tool_call>"},
    // Hermes, as Qwen writes it
    {Hermes, "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 1}}\n</tool_call>",
     "|f {\"a\": 1}"},
    {Mistral,
     "[TOOL_CALLS][{\"name\": \"f\", \"arguments\": {\"a\": 340282366920938463463374607431768211456}}]",
     "|f {\"a\":340282366920938463463374607431768211456}"},
    {Hermes,
     "I call.\n\n<tool_call>{\"name\":\"f\"}</tool_call>\n<tool_call>{\"name\":\"g\","
     "\"arguments\":\"{\\\"x\\\":[]}\"}</tool_call>\n",
     "I call.|f {}|g {\"x\":[]}"},
    {Hermes,
     "<tool_call>{\"name\": \"f\", \"arguments\": {\"t\": \"</tool_call> }{\"}}</tool_call>",
     "|f {\"t\": \"</tool_call> }{\"}"},
    {Hermes, "<tool_call>\n{\"name\": \"f\", \"arguments\": {}}", "|f {}"},
    {Hermes, "<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_", "|f {}"},
    {Hermes, "<tool_call>{\"name\": \"f\"}</tool_call> done", "done|f {}"},
    {Hermes, "<tool_call>{\"name\": \"f\", \"arguments\": 3}</tool_call>",
     "<tool_call>{\"name\": \"f\", \"arguments\": 3}</tool_call>"},
    {Hermes, "<tool_call>{\"name\": \"\"}</tool_call>", "<tool_call>{\"name\": \"\"}</tool_call>"},
    {Hermes, "<tool_call>{'name': 1}</tool_call>", "<tool_call>{'name': 1}</tool_call>"},
    {Hermes, "<tool_call>oh <tool_call>{\"name\": \"f\"}</tool_call>", "<tool_call>oh|f {}"},
    {Hermes, "a <tool_call> b", "a <tool_call> b"},
    {Hermes, "a <tool_call>{\"name\": ", "a"},
    {Hermes, "a <tool", "a <tool"},
    {Hermes, "  plain \n text \n", "  plain \n text \n"},
    {Hermes, "{\"name\": \"f\"}", "{\"name\": \"f\"}"},
    // Llama 3
    {Llama3, "{\"name\": \"f\", \"parameters\": {\"a\": \"b\"}}", "|f {\"a\": \"b\"}"},
    {Llama3, "<|python_tag|>{\"name\": \"f\", \"parameters\": {}}; {\"name\": \"g\"}",
     "|f {}|g {}"},
    {Llama3, "\n{\"type\": \"function\", \"name\": \"f\", \"parameters\": {}}", "|f {}"},
    {Llama3, "{\"name\": \"other\", \"parameters\": {}}",
     "{\"name\": \"other\", \"parameters\": {}}"},
    {Llama3, "{\"city\": \"Paris\"}", "{\"city\": \"Paris\"}"},
    {Llama3, "So: {\"name\": \"f\", \"parameters\": {}}",
     "So: {\"name\": \"f\", \"parameters\": {}}"},
    {Llama3, "<|python_tag|>brave_search.call(query=\"x\")",
     "<|python_tag|>brave_search.call(query=\"x\")"},
    // Mistral
    {Mistral, "[TOOL_CALLS][{\"name\": \"f\", \"arguments\": {\"a\": 1}, \"id\": \"abc123def\"}]",
     "|f {\"a\":1} #abc123def"},
    {Mistral, "[TOOL_CALLS] [{\"name\": \"f\"}, {\"name\": \"g\"}]", "|f {}|g {}"},
    {Mistral, "[TOOL_CALLS]f[ARGS]{\"a\": 1}[TOOL_CALLS]g[CALL_ID]x1[ARGS]{}",
     "|f {\"a\": 1}|g {} #x1"},
    {Mistral, "[TOOL_CALLS]f{\"a\": 1}", "|f {\"a\": 1}"},
    {Mistral, "[TOOL_CALLS][{\"name\": \"f\"}, 3]", "[TOOL_CALLS][{\"name\": \"f\"}, 3]"},
    {Mistral, "[TOOL_CALLS][]", "[TOOL_CALLS][]"},
    {Mistral, "a [TOOL] b", "a [TOOL] b"},
    // Nemotron Nano 2
    {Nemotron,
     "I look.\n<TOOLCALL>[{\"name\": \"f\", \"arguments\": {\"a\": 1}}, {\"name\": \"g\"}]"
     "</TOOLCALL>\n",
     "I look.|f {\"a\":1}|g {}"},
    {Nemotron, "<TOOLCALL>[{\"name\": \"f\"}]", "|f {}"},
    {Nemotron, "<TOOLCALL>no</TOOLCALL>", "<TOOLCALL>no</TOOLCALL>"},
    // LFM2
    {Python,
     "<|tool_call_start|>[f(city='Paris', days=[1, 2], deep={'x': True}), g()]<|tool_call_end|>So",
     "So|f {\"city\": \"Paris\", \"days\": [1, 2], \"deep\": {\"x\": true}}|g {}"},
    {Python, "<|tool_call_start|>[f(a='it's \"so\"', b=\"x=(1, 2)\", c=None)]<|tool_call_end|>",
     "|f {\"a\": \"it's \\\"so\\\"\", \"b\": \"x=(1, 2)\", \"c\": null}"},
    {Python, "<|tool_call_start|>[f(a='l1\\nl2', b=-1.5)]", "|f {\"a\": \"l1\\nl2\", \"b\": -1.5}"},
    {Python, "<|tool_call_start|>f(\n  a = 1,\n)<|tool_call_end|>", "|f {\"a\": 1}"},
    {Python, "<|tool_call_start|>[{\"name\": \"f\", \"arguments\": {\"a\": 1}}]<|tool_call_end|>",
     "|f {\"a\":1}"},
    {Python, "<|tool_call_start|>[f(1)]<|tool_call_end|>",
     "<|tool_call_start|>[f(1)]<|tool_call_end|>"},
    {Python, "<|tool_call_start|>[f(a=1)", ""},
    {Python, "<|tool_call_start|>[f(a=b)]<|tool_call_end|>",
     "<|tool_call_start|>[f(a=b)]<|tool_call_end|>"},
    // DeepSeek V3.1, then R1
    {DeepSeek,
     "Let me see.<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>{\"a\": "
     "1}<｜tool▁call▁end｜>"
     "<｜tool▁call▁begin｜>g<｜tool▁sep｜>{}<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
     "Let me see.|f {\"a\": 1}|g {}"},
    {DeepSeek,
     "<｜tool▁calls▁begin｜>\n<｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n```json\n{\"a\": "
     "\"```\"}\n```"
     "<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>function<｜tool▁sep｜>g\n```json\n{}\n```"
     "<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
     "|f {\"a\": \"```\"}|g {}"},
    {DeepSeek, "<｜tool▁calls▁begin｜>no", "<｜tool▁calls▁begin｜>no"},
    {DeepSeek, "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>{\"a\"", "|f {\"a\""},
    // Kimi K2
    {Kimi,
     "<|tool_calls_section_begin|><|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>"
     "{\"a\": 1}<|tool_call_end|><|tool_call_begin|>functions.g:1<|tool_call_argument_begin|>{}"
     "<|tool_call_end|><|tool_calls_section_end|>",
     "|f {\"a\": 1} #functions.f:0|g {} #functions.g:1"},
    {Kimi, "<|tool_call_begin|>f", ""},
    // GLM
    {Glm,
     "I look.\n<tool_call>f\n<arg_key>a</arg_key>\n<arg_value>42</arg_value>\n<arg_key>s</arg_key>"
     "\n<arg_value>42</arg_value>\n</tool_call>\n<tool_call>g</tool_call>",
     "I look.|f {\"a\": 42, \"s\": \"42\"}|g {}"},
    {Glm, "<tool_call>g<arg_key>x</arg_key><arg_value>a < b\n\"c\"</arg_value></tool_call>",
     "|g {\"x\": \"a < b\\n\\\"c\\\"\"}"},
    {Glm, "<tool_call>g<arg_key>x</arg_key><arg_value>{\"y\": [1]}</arg_value></tool_",
     "|g {\"x\": {\"y\":[1]}}"},
    {Glm, "<tool_call>oh no</tool_call>", "<tool_call>oh no</tool_call>"},
    {Glm, "<tool_call>{\"name\": \"f\"}</tool_call>", "<tool_call>{\"name\": \"f\"}</tool_call>"},
    // Qwen3-Coder
    {QwenCoder,
     "So.\n<tool_call>\n<function=f>\n<parameter=a>\n[1, 2]\n</parameter>\n<parameter=s>\ndef "
     "f():\n  return 1\n</parameter>\n</function>\n</tool_call>\n<tool_call>\n<function=g>\n"
     "</function>\n</tool_call>",
     "So.|f {\"a\": [1,2], \"s\": \"def f():\\n  return 1\"}|g {}"},
    {QwenCoder, "<function=g><parameter=x>true</parameter></function>", "|g {\"x\": true}"},
    {QwenCoder, "<tool_call>\nno", "<tool_call>\nno"},
    {QwenCoder,
     "Yes.\n<seed:tool_call>\n<function=g>\n<parameter=x>true</parameter>\n</function>\n"
     "</seed:tool_call>",
     "Yes.|g {\"x\": true}"},
    // MiniMax-M2
    {MiniMax,
     "I look.\n<minimax:tool_call>\n<invoke name=\"f\">\n<parameter name=\"a\">42</parameter>\n"
     "<parameter name=\"s\">42</parameter>\n</invoke>\n<invoke name=\"g\">\n</invoke>\n"
     "</minimax:tool_call>",
     "I look.|f {\"a\": 42, \"s\": \"42\"}|g {}"},
    {MiniMax, "<invoke name=\"g\"><parameter name=\"x\">a < b</parameter></invoke>",
     "|g {\"x\": \"a < b\"}"},
    {MiniMax, "<minimax:tool_call>no", "<minimax:tool_call>no"},
    // Muse Glimmer
    {Atem,
     "<atem:function_calls>\n<atem:invoke name=\"f\">\n<atem:parameter name=\"a\">42"
     "</atem:parameter>\n<atem:parameter name=\"s\"> 42 </atem:parameter>\n</atem:invoke>\n"
     "</atem:function_calls>",
     "|f {\"a\": 42, \"s\": \" 42 \"}"},
    {Atem, "<atem:function_calls>no", "<atem:function_calls>no"},
    // Kimi-K3
    {KimiK3,
     "I look.<|open|>tools<|sep|><|open|>call tool=\"f\" index=\"1\"<|sep|><|open|>argument "
     "key=\"type\" type=\"number\"<|sep|>4.5<|close|>argument<|sep|><|open|>argument key=\"x\" "
     "type=\"string\"<|sep|> 42 <b> <|close|>argument<|sep|><|open|>argument key=\"o\" "
     "type=\"object\"<|sep|>{\"a\": [null, true]}<|close|>argument<|sep|><|close|>call<|sep|><|open|>"
     "call tool=\"g&quot;&amp;\" index=\"2\"<|sep|><|close|>call<|sep|><|close|>tools<|sep|>",
     "I look.|f {\"type\": 4.5, \"x\": \" 42 <b> \", \"o\": {\"a\":[null,true]}}|g\"& {}"},
    {KimiK3,
     "<|open|>tools<|sep|><|open|>call tool=\"f\" index=\"1\"<|sep|><|open|>json type=\"object\""
     "<|sep|>{\"a\": \"<|close|>call<|sep|>\"}<|close|>json<|sep|><|close|>call<|sep|>",
     "|f {\"a\": \"<|close|>call<|sep|>\"}"},
    {KimiK3,
     "<|open|>call tool=\"f\"<|sep|><|open|>json type=\"object\"<|sep|><|close|>json<|sep|><|close|>"
     "call<|sep|><|open|>call tool=\"g\"<|sep|><|open|>json<|sep|> null <|close|>json<|sep|><|close|>"
     "call<|sep|><|close|>tools<|sep|><|close|>message<|sep|>",
     "|f {}|g {}"},
    {KimiK3, "<|open|>call tool=\"f\"<|sep|><|open|>json<|sep|>{\"a\": 1}<|close|>json<|sep|>",
     "|f {\"a\": 1}"},
    // No object, and another tag.
    {KimiK3, "<|open|>call tool=\"f\"<|sep|><|open|>json<|sep|>[1]<|close|>json<|sep|>",
     "<|open|>call tool=\"f\"<|sep|><|open|>json<|sep|>[1]<|close|>json<|sep|>"},
    {KimiK3, "<|open|>call tool=\"f\"<|sep|><|open|>jsons<|sep|>{}",
     "<|open|>call tool=\"f\"<|sep|><|open|>jsons<|sep|>{}"},
    // Marks of an answer within a value.
    {KimiK3,
     "<|open|>tools<|sep|><|open|>call tool=\"f\"<|sep|><|open|>argument key=\"s\" type=\"string\""
     "<|sep|><|close|>response<|sep|><|close|>message<|sep|><|close|>argument<|sep|><|close|>call<|sep|>",
     "|f {\"s\": \"<|close|>response<|sep|><|close|>message<|sep|>\"}"},
    {KimiK3, "<|open|>call tool=\"f\"<|sep|><|open|>argument key=\"s\" type=\"string\"<|sep|>x",
     "|f {"},
    {KimiK3, "<|open|>tools<|sep|>no", "<|open|>tools<|sep|>no"},
    // DeepSeek-V3.2
    {Dsml,
     "So.\n\n<｜DSML｜function_calls>\n<｜DSML｜invoke name=\"g\">\n<｜DSML｜parameter name=\"x\" "
     "string=\"true\">42</｜DSML｜parameter>\n<｜DSML｜parameter name=\"y\" string=\"false\">[1]"
     "</｜DSML｜parameter>\n</｜DSML｜invoke>\n<｜DSML｜invoke name=\"f\">\n</｜DSML｜invoke>\n"
     "</｜DSML｜function_calls>",
     "So.|g {\"x\": \"42\", \"y\": [1]}|f {}"},
    // DeepSeek-V4 calls the section otherwise
    {Dsml,
     "So.\n\n<｜DSML｜tool_calls>\n<｜DSML｜invoke name=\"g\">\n<｜DSML｜parameter name=\"x\" "
     "string=\"true\">42</｜DSML｜parameter>\n</｜DSML｜invoke>\n<｜DSML｜invoke name=\"f\">\n"
     "</｜DSML｜invoke>\n</｜DSML｜tool_calls>",
     "So.|g {\"x\": \"42\"}|f {}"},
    {Dsml, "<｜DSML｜tool_calls>no", "<｜DSML｜tool_calls>no"},
    // Ministral 3 and Devstral: each call behind a marker of its own
    {Mistral, "I look.[TOOL_CALLS]f[ARGS]{\"s\": \"[TOOL_CALLS]\"}[TOOL_CALLS]g[ARGS]{}",
     "I look.|f {\"s\": \"[TOOL_CALLS]\"}|g {}"},
    {Mistral, "[TOOL_CALLS]f[ARGS]", "|f {}"},
    {Mistral, "[TOOL_CALLS]f[ARGS]no", "[TOOL_CALLS]f[ARGS]no"},
    {Mistral, "[TOOL_CALLS]f[ARGS]{\"s\": 1", "|f {\"s\": 1}"},
    // Gemma 4
    {Gemma,
     "I look.\n<|tool_call>call:f{a:42,s:<|\"|>42 } \"x\", \\<|\"|>}<tool_call|><|tool_call>call:g{}"
     "<tool_call|>",
     "I look.|f {\"a\": 42, \"s\": \"42 } \\\"x\\\", \\\\\"}|g {}"},
    {Gemma,
     "<|tool_call>call:g{ x : [1, -2.5e3 ,<|\"|>é<|\"|>,{<|\"|>y z<|\"|>:null,t:true}, []], d:{} }"
     "<tool_call|><|tool_response>",
     "|g {\"x\": [1, -2.5e3, \"é\", {\"y z\": null, \"t\": true}, []], \"d\": {}}"},
    {Gemma, "<|tool_call>call:g{x:1}<tool_", "|g {\"x\": 1}"},
    {Gemma, "<|tool_call>call:g{x:1", "|g {"},
    {Gemma, "<|tool_call>call:g{x:y}<tool_call|>", "|g {"},
    {Gemma, "<|tool_call>call:g{x:\"y\",'z':'é',\"w\":[<|\"|>a<|\"|>}<tool_call|>",
     "|g {\"x\": \"y\", \"z\": \"é\", \"w\": [\"a\"]}"},
    {Gemma, "<|tool_call>call:g{a:<|\"|>x<|\"|><tool_call|> b", "b|g {\"a\": \"x\"}"},
    {Gemma, "<|tool_call>call:g<tool_call|>", "|g {}"},
    {Gemma, "<|tool_call>call:g{x:1,}<tool_call|>", "|g {\"x\": 1}"},
    {Gemma, "<|tool_call>call:g{x:1 y:2}<tool_call|> b", "b|g {\"x\": 1"},
    {Gemma, "<|tool_call>call:{}<tool_call|>", "<|tool_call>call:{}<tool_call|>"},
    {Gemma, "<|tool_call>call: no", ""},
    {Gemma, "<|tool_call> no", "<|tool_call> no"},

    // Mended: brackets that are missing, or too many, commas, quotes, words, raw line ends.
    {Hermes, "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": \"x\"}\n</tool_call> b",
     "b|f {\"a\": \"x\"}"},
    {Hermes, "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": [1, {\"b\": 2</tool_call>",
     "|f {\"a\": [1, {\"b\": 2}]}"},
    {Hermes, "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": [1, 2}}</tool_call>",
     "|f {\"a\": [1, 2]}"},
    {Hermes, "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": 1}}}]}\n</tool_call>",
     "|f {\"a\": 1}"},
    {Hermes, "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": [1,], },}</tool_call>",
     "|f {\"a\": [1]}"},
    {Hermes, "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": \"l1\nl2\t\\d\\'\"}}</tool_call>",
     "|f {\"a\": \"l1\\nl2\\t\\\\d'\"}"},
    {Hermes,
     "<tool_call>{'name': 'f', 'arguments': {'a': True, b: [None, 'say \"x\"']}}</tool_call>",
     "|f {\"a\": true, \"b\": [null, \"say \\\"x\\\"\"]}"},
    {Hermes, "<tool_call>\n```json\n{\"name\": \"f\", \"arguments\": {}}\n```\n</tool_call>",
     "|f {}"},
    {Hermes,
     "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": 12345678901234567890123}}</tool_call>",
     "|f {\"a\": 12345678901234567890123}"},
    {Llama3, "{\"name\": \"f\", \"parameters\": {\"a\": False}", "|f {\"a\": false}"},
    {Kimi, "<|tool_call_begin|>f:0<|tool_call_argument_begin|>{\"a\": 1<|tool_call_end|>",
     "|f {\"a\": 1} #f:0"},
    {Hermes, "<tool_call>{\"name\": \"f\" \"arguments\": {\"a\": \"x\" \"n\": +1}}</tool_call>",
     "|f {\"a\": \"x\" ,\"n\": 1}"},
    // Forms of other families.
    {Hermes,
     "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 1}}\n{\"name\": \"g\"}\n</tool_call>\n{}",
     "{}|f {\"a\": 1}|g {}"},
    {Hermes, "<tool_call>[{\"name\": \"f\"}, {\"name\": \"g\", \"arguments\": []}]</tool_call>",
     "|f {}|g {}"},
    {Hermes,
     "<tool_call>{\"type\": \"function\", \"function\": {\"name\": \"f\", \"arguments\": {}}}"
     "</tool_call>",
     "|f {}"},
    {Mistral, "[TOOL_CALLS]{\"name\": \"f\", \"arguments\": {\"a\": 1}}", "|f {\"a\":1}"},
    {DeepSeek, "<｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n{\"a\": 1}<｜tool▁call▁end｜>",
     "|f {\"a\": 1}"},
    {Kimi,
     "<|tool_call_begin|>f:0<|tool_call_argument_begin|>```json\n{\"a\": 1}\n```<|tool_call_end|>",
     "|f {\"a\": 1} #f:0"},
    // Tags that are missing, up to those that end the call.
    {Kimi, "<|tool_call_begin|>functions.f:0{\"a\": 1}<|tool_call_end|>",
     "|f {\"a\": 1} #functions.f:0"},
    {Kimi, "<|tool_call_begin|>g:0<|tool_call_end|>", "|g {} #g:0"},
    {DeepSeek, "<｜tool▁call▁begin｜>g<｜tool▁call▁end｜><｜tool▁calls▁end｜>", "|g {}"},
    {Glm, "<tool_call>g", "|g {}"},
    {Glm, "<tool_call>f\n<arg_key>s</arg_key>\n<arg_value>x\n</tool_call>", "|f {\"s\": \"x\"}"},
    {Glm,
     "<tool_call>f\n<arg_key>s</arg_key>\n<arg_value>x\n<arg_key>a</arg_key>\n<arg_value>1</arg_value>"
     "\n<tool_call>g</tool_call>",
     "|f {\"s\": \"x\", \"a\": 1}|g {}"},
    {QwenCoder, "<tool_call>\n<function=f>\n<parameter=s>\nx\n</function>\n</tool_call>\nb",
     "b|f {\"s\": \"x\"}"},
    {QwenCoder, "<tool_call>\n<function=f>\n<parameter=s>\nx\n</function>\n</tool_call>\n",
     "|f {\"s\": \"x\"}"},
    {QwenCoder,
     "<tool_call>\n<function=f>\n<parameter=s>\nx\n</tool_call>\n<tool_call>\n<function=g>\n"
     "</tool_call>",
     "|f {\"s\": \"x\"}|g {}"},
    {QwenCoder,
     "<tool_call><function=\"f\">\n<parameter=s>\nx\n<parameter=a>\n3\n</parameter>\n</tool_call>",
     "|f {\"s\": \"x\", \"a\": 3}"},
    {QwenCoder, "<function=f><parameter=s>a </function> b <parameter=c></parameter></function>",
     "|f {\"s\": \"a </function> b <parameter=c>\"}"},
    {MiniMax,
     "<minimax:tool_call>\n<invoke name=\"f\">\n<parameter name=\"s\">x\n</invoke>\n"
     "<invoke name='g'/>\n<invoke name=\"g\">\n</minimax:tool_call>",
     "|f {\"s\": \"x\"}|g {}|g {}"},
    {Dsml,
     "<｜DSML｜function_calls>\n<｜DSML｜invoke name=\"g\">\n<｜DSML｜parameter name=\"x\" "
     "string=\"true\">42\n</｜DSML｜function_calls>",
     "|g {\"x\": \"42\"}"},
    // What has more than one reading is not: a call that breaks off, and nothing of its marks.
    {Hermes, "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": \"x \"y\" z\"}}</tool_call> b",
     "b|f {\"a\": \"x \""},
    {Hermes,
     "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": oops}}</tool_call>\n<tool_call>"
     "{\"name\": \"g\"}</tool_call>",
     "|f {\"a\": |g {}"},
    // No arguments, in all ways of saying so.
    {Hermes, "<tool_call>{\"name\": \"f\", \"arguments\": null}</tool_call>", "|f {}"},
    {Hermes, "<tool_call>{\"name\": \"f\", \"arguments\": \"\"}</tool_call>", "|f {}"},
    {Hermes, "<tool_call>{\"name\": \"f\", \"arguments\": \"null\"}</tool_call>", "|f {}"},
    {DeepSeek, "<｜tool▁call▁begin｜>f<｜tool▁sep｜><｜tool▁call▁end｜>", "|f {}"},
    {Kimi, "<|tool_call_begin|>f:0<|tool_call_argument_begin|>null<|tool_call_end|>", "|f {} #f:0"},
    {Mistral, "[TOOL_CALLS]f[ARGS][TOOL_CALLS]g[ARGS]{}", "|f {}|g {}"},
    // Marks that come twice, or of which one is missing.
    {Hermes, "<tool_call>\n<tool_call>{\"name\": \"f\"}</tool_call></tool_call> b", "b|f {}"},
    {Hermes, "<tool_call>{\"name\": \"f\"}\n<tool_call>{\"name\": \"g\"}</tool_call>",
     "|f {}|g {}"},
    {QwenCoder, "<tool_call><tool_call><function=g></function></function></tool_call></tool_call>",
     "|g {}"},
    // White space between texts.
    {Hermes, "a  <tool_call>{\"name\": \"f\"}</tool_call> \nb", "a   \nb|f {}"},
    {Hermes,
     "a\n<tool_call>{\"name\": \"f\"}</tool_call>\n<tool_call>{\"name\": \"g\"}</tool_call>\n",
     "a|f {}|g {}"},
    {Glm, "a\n<tool_call>g</tool_call>\nb <tool_call>g</tool_call> c", "a\n\nb  c|g {}|g {}"},
    // Python's values, by the schema of the parameter: s is a text, n a text or null.
    {QwenCoder,
     "<function=f><parameter=a>\nTrue\n</parameter><parameter=s>\nNone\n</parameter>"
     "<parameter=n>None</parameter><parameter=b>FALSE</parameter></function>",
     "|f {\"a\": true, \"s\": \"None\", \"n\": null, \"b\": false}"},
    {Glm,
     "<tool_call>g<arg_key>x</arg_key><arg_value>{'a': [True, 'it''s']}</arg_value>"
     "<arg_key>y</arg_key><arg_value>['a', None,]</arg_value></tool_call>",
     "|g {\"x\": \"{'a': [True, 'it''s']}\", \"y\": [\"a\",null]}"},
    // Other attributes, and commas between them.
    {MiniMax,
     "<invoke required name=\"g\"><parameter name=\"x\", string=\"true\">42</parameter></invoke>",
     "|g {\"x\": \"42\"}"},
    {MiniMax,
     "<invoke name=\"g\"><parameter name=\"x\">12345678901234567890123</parameter></invoke>",
     "|g {\"x\": 12345678901234567890123}"},
    {Gemma, "<|tool_call>call:g{x:None,y:[True,],}<tool_call|>", "|g {\"x\": null, \"y\": [true]}"},
};

TEST(ToolCallParser, ReadsEachFormHoweverTheTextIsCut) {
  for (const Case& c : kCases) {
    for (const auto& pieces : ktx::testing::cuts(c.text, 30)) {
      ASSERT_EQ(parse(c.format, pieces, kTools), c.want) << c.text;
    }
  }
}

// Said at once or in pieces: the same texts and calls, to the byte.
TEST(ToolCallParser, StreamsWhatItWouldGiveWhole) {
  for (const Case& c : kCases) {
    for (const auto& pieces : ktx::testing::cuts(c.text, 30)) {
      ASSERT_EQ(stream(c.format, pieces, kTools), c.want) << c.text;
    }
  }
}

// An answer that follows a format has no call within, and calls have no text around.
TEST(ToolCallParser, CallsStandAloneBesideAFormat) {
  const Case kCasesOfFormats[] = {
      {Hermes, "{\"a\": \"<tool_call>{\\\"name\\\": 1}</tool_call>\"}",
       "{\"a\": \"<tool_call>{\\\"name\\\": 1}</tool_call>\"}"},
      {Hermes, "\n{\"a\": \"<tool\"}\n", "\n{\"a\": \"<tool\"}\n"},
      {Hermes, "[\"\", \"<tool_call>{\"name\": \"f\"}</tool_call>\"]",
       "[\"\", \"<tool_call>{\"name\": \"f\"}</tool_call>\"]"},
      {Hermes, "\n<tool_call>{\"name\": \"f\"}</tool_call> so\n<tool_call>{\"name\": \"g\"}",
       "|f {}|g {}"},
      {Hermes, "<tool_call>oh no", ""},
      {Hermes, "<tool_call>oh <tool_call>{\"name\": \"f\"}</tool_call>", "|f {}"},
      {Mistral, "[1, \"[TOOL_CALLS]f[ARGS]{}\"]", "[1, \"[TOOL_CALLS]f[ARGS]{}\"]"},
      {Mistral, "[TOOL_CALLS]f[ARGS]{}", "|f {}"},
      {Llama3, "{\"name\": \"f\", \"parameters\": {}} well", "|f {}"},
      {Llama3, "{\"name\": \"<|python_tag|>\"}", "{\"name\": \"<|python_tag|>\"}"},
      {Llama3, "{\"a\": \"<|python_tag|>{\"name\": \"f\"}\"}",
       "{\"a\": \"<|python_tag|>{\"name\": \"f\"}\"}"},
  };
  for (const Case& c : kCasesOfFormats) {
    for (const auto& pieces : ktx::testing::cuts(c.text, 30)) {
      ASSERT_EQ(parse(c.format, pieces, kTools, true), c.want) << c.text;
    }
  }
}

// An answer that its limit cuts, anywhere: no mark and no half of one is text, nothing is mended.
TEST(ToolCallParser, OfACutAnswerNoMarkIsShown) {
  const auto cut = [](std::string_view text, bool streams) {
    ToolCallParser parser(Hermes, kTools, streams);
    ToolCallDelta delta = parser.add(text), rest = parser.finish(true);
    std::string out = delta.text + rest.text;
    for (const ToolCall& call : rest.calls) out += "|" + call.name + " " + call.arguments;
    for (const auto* pieces : {&delta.pieces, &rest.pieces}) {
      for (const ToolCallPiece& piece : *pieces) {
        out += (piece.begins ? "|" + piece.name + " " : "") + piece.arguments;
      }
    }
    return out;
  };
  const std::string_view text = "a <tool_call>\n{\"name\": \"f\", \"arguments\": {\"s\": [1, 2";
  for (size_t bytes = 3; bytes <= text.size(); ++bytes) {
    const size_t arguments = text.find("{\"s");
    const std::string want =
        bytes <= arguments ? "a" : "a|f " + std::string(text.substr(arguments, bytes - arguments));
    for (const bool streams : {false, true}) {
      const std::string got = cut(text.substr(0, bytes), streams);
      // A number may go on, and a comma be one too many: they wait.
      EXPECT_TRUE(want.starts_with(got) && got.size() + 3 >= want.size()) << got << " / " << want;
    }
  }
  EXPECT_EQ(cut("a < b ", false), "a < b ");
}

TEST(ToolCallParser, ArgumentsComeAsTheyAreSaid) {
  ToolCallParser json(Hermes, {}, true);
  EXPECT_TRUE(json.add("<tool_call>{\"name\": \"f\", \"argum").pieces.empty());
  ToolCallDelta delta = json.add("ents\": {\"city\": \"Par");
  ASSERT_EQ(delta.pieces.size(), 1u);
  EXPECT_EQ(delta.pieces[0].name, "f");
  EXPECT_EQ(delta.pieces[0].arguments, "{\"city\": \"Par");
  delta = json.add("is\"}");
  ASSERT_EQ(delta.pieces.size(), 1u);
  EXPECT_FALSE(delta.pieces[0].begins);
  EXPECT_EQ(delta.pieces[0].arguments, "is\"}");
  EXPECT_TRUE(json.add("}</tool_call>").pieces.empty());

  ToolCallParser xml(QwenCoder, {}, true);
  delta = xml.add("<tool_call><function=f>");
  ASSERT_EQ(delta.pieces.size(), 1u);
  EXPECT_EQ(delta.pieces[0].arguments, "{");
  EXPECT_EQ(xml.add("<parameter=a>1</parameter>").pieces[0].arguments, "\"a\": 1");
  EXPECT_EQ(xml.add("</function>").pieces[0].arguments, "}");

  // Cut off: what was said stays, nothing of it comes as text.
  ToolCallParser cut(Hermes, {}, true);
  EXPECT_EQ(cut.add("<tool_call>{\"name\": \"f\", \"arguments\": {\"a\"").pieces.size(), 1u);
  delta = cut.finish();
  EXPECT_EQ(delta.text, "");
  EXPECT_TRUE(delta.pieces.empty());
}

// Texts made of the pieces of all forms, right and wrong: whole equals cut.
TEST(ToolCallParser, AnyCutOfAnyTextGivesTheSame) {
  const std::vector<std::string> kPieces = {"<tool_call>",
                                            "</tool_call>",
                                            "{\"name\": \"f\", \"arguments\": {}}",
                                            "{\"name\"",
                                            "}",
                                            "{",
                                            "[",
                                            "]",
                                            " ",
                                            "\n",
                                            ";",
                                            "x",
                                            "\"",
                                            "[TOOL_CALLS]",
                                            "f[ARGS]",
                                            "<|python_tag|>",
                                            "<｜tool▁calls▁begin｜>",
                                            "<｜tool▁call▁begin｜>",
                                            "f<｜tool▁sep｜>",
                                            "<｜tool▁call▁end｜>",
                                            "<｜tool▁calls▁end｜>",
                                            "<|tool_call_begin|>",
                                            "f:0<|tool_call_argument_begin|>",
                                            "{}",
                                            "<|tool_call_end|>",
                                            "function<｜tool▁sep｜>f\n```json\n",
                                            "```",
                                            "<function=f>",
                                            "<parameter=s>",
                                            "</parameter>",
                                            "</function>",
                                            "<minimax:tool_call>",
                                            "<invoke name=\"f\">",
                                            "<parameter name=\"s\">",
                                            "</invoke>",
                                            "</minimax:tool_call>",
                                            "<｜DSML｜invoke name=\"f\">",
                                            "<｜DSML｜parameter name=\"s\" string=\"true\">",
                                            "</｜DSML｜parameter>",
                                            "</｜DSML｜invoke>",
                                            "f<arg_key>",
                                            "a</arg_key><arg_value>",
                                            "</arg_value>",
                                            "<|tool_call>call:f{",
                                            "<|tool_call>call:f{s:",
                                            "<|\"|>",
                                            "a:1",
                                            "'",
                                            "True",
                                            "\\",
                                            "{'name': 'f', 'arguments': {a: None, ",
                                            ",",
                                            "[1,",
                                            "}<tool_call|>",
                                            "<|tool_response>",
                                            "{\"name\": \"f\", \"arguments\": {",
                                            "<|open|>tools<|sep|>",
                                            "<|open|>call tool=\"f\"<|sep|>",
                                            "<|open|>argument key=\"s\"<|sep|>",
                                            "<|close|>argument<|sep|>",
                                            "<|open|>json <|sep|>",
                                            "<|open|>json<|sep|>",
                                            "null",
                                            "<|close|>json<|sep|>",
                                            "<|close|>call<|sep|>",
                                            "<",
                                            "é"};
  constexpr auto kForms = static_cast<uint32_t>(Harmony) - 1;
  std::mt19937 random(11);
  for (int round = 0; round < 6000; ++round) {
    std::string text;
    for (int n = static_cast<int>(random() % 9); n > 0; --n)
      text += kPieces[random() % kPieces.size()];
    const auto format = static_cast<ToolCallFormat>(1 + random() % kForms);
    const std::string whole = parse(format, {text}), streamed = stream(format, {text});
    for (const auto& pieces : ktx::testing::cuts(text, 3)) {
      ASSERT_EQ(parse(format, pieces), whole) << format_name(format) << ": " << text;
      ASSERT_EQ(stream(format, pieces), streamed) << format_name(format) << ": " << text;
    }
  }
}

TEST(ToolCallParser, ShowsTextAtOnceAndNoHalfMarker) {
  ToolCallParser parser(Hermes);
  EXPECT_EQ(parser.add("I look it up.\n<tool_c").text, "I look it up.");
  EXPECT_EQ(parser.add("ake>").text, "\n<tool_cake>");
  EXPECT_TRUE(parser.add("<tool_call>{\"name\": \"f\"").text.empty());
  const ToolCallDelta delta = parser.add("}</tool_call>");
  ASSERT_EQ(delta.calls.size(), 1u);
  EXPECT_EQ(delta.calls[0].name, "f");
}

// It breaks off where it is too long, however it comes.
TEST(ToolCallParser, ALongCallHasAnEnd) {
  const std::string text = "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": \"" +
                           std::string(300'000, 'x') + "\"}}</tool_call> b";
  const std::string whole = parse(Hermes, {text});
  EXPECT_TRUE(whole.starts_with("b|f {\"a\": \"xxx")) << whole.substr(0, 40);
  std::vector<std::string> pieces;
  for (size_t at = 0; at < text.size(); at += 1000) pieces.push_back(text.substr(at, 1000));
  EXPECT_TRUE(parse(Hermes, pieces) == whole);
  EXPECT_TRUE(stream(Hermes, {text}) == whole);
  EXPECT_TRUE(stream(Hermes, pieces) == whole);
}

// Half a marker is not counted as part of the name in front of it.
TEST(ToolCallParser, ANameOfTheMostBytesIsOneHoweverItIsCut) {
  const struct {
    ToolCallFormat format;
    std::string before, behind;
  } kForms[] = {
      {Mistral, "[TOOL_CALLS]", "[ARGS]{}"},
      {Mistral, "[TOOL_CALLS]", "{}"},
      {DeepSeek, "<｜tool▁call▁begin｜>", "<｜tool▁sep｜>{}<｜tool▁call▁end｜>"},
      {DeepSeek, "<｜tool▁call▁begin｜>", "<｜tool▁call▁end｜>"},
      {Kimi, "<|tool_call_begin|>", "<|tool_call_argument_begin|>{}<|tool_call_end|>"},
      {Kimi, "<|tool_call_begin|>", "<|tool_call_end|>"},
      {Gemma, "<|tool_call>call:", "<tool_call|>"},
  };
  for (const auto& form : kForms) {
    for (const size_t bytes : {256, 257}) {
      const std::string name(bytes, 'n'), text = form.before + name + form.behind;
      const std::string whole = parse(form.format, {text});
      EXPECT_EQ(whole.starts_with("|" + name + " {}"), bytes == 256) << whole;
      for (const auto& pieces : ktx::testing::cuts(text, 10)) {
        ASSERT_EQ(parse(form.format, pieces), whole);
        ASSERT_EQ(stream(form.format, pieces), whole);
      }
    }
  }
}

// Writing nested JSON recurses: arguments in a string are no way around the limit.
TEST(ToolCallParser, ArgumentsNestedTooDeepComeOutAsText) {
  const std::string open = R"({\"a\":)" + std::string(50'000, '[') + std::string(50'000, ']') + "}";
  const std::string text =
      "<tool_call>{\"name\": \"f\", \"arguments\": \"" + open + "\"}</tool_call>";
  EXPECT_EQ(parse(Hermes, {text}), text);
}

TEST(ToolCallParser, ValuesNestedTooDeepBreakACallOff) {
  const std::string text = "<|tool_call>call:f{a:" + std::string(50'000, '[') +
                           std::string(50'000, ']') + "}<tool_call|>";
  EXPECT_EQ(parse(Gemma, {text}), "|f {");
  EXPECT_EQ(parse(Gemma, {text.substr(0, 40'000)}), "|f {");
}

TEST(ToolCallParser, HostileTextTakesLinearTime) {
  std::string text;
  while (text.size() < 400'000) text += "<tool_call>{\"\":[\"";
  std::vector<std::string> pieces;
  for (size_t at = 0; at < text.size(); at += 4) pieces.push_back(text.substr(at, 4));
  const double begin = testing::cpu_seconds();
  // The last one may have become a call.
  EXPECT_EQ(parse(Hermes, pieces), text.substr(0, text.rfind("<tool_call>")));
  EXPECT_LT(testing::cpu_seconds() - begin, 10);
}

TEST(DetectToolCallFormat, KnowsTheRealTemplates) {
  const std::pair<const char*, ToolCallFormat> kTemplates[] = {
      {"Qwen-Qwen2.5-7B-Instruct", Hermes},
      {"Qwen-Qwen3-0.6B", Hermes},
      {"meta-llama-Llama-3.1-8B-Instruct", Llama3},
      {"mistralai-Mistral-Nemo-Instruct-2407", Mistral},
      {"deepseek-ai-DeepSeek-V3.1", DeepSeek},
      {"llama-cpp-deepseek-r1", DeepSeek},
      {"Kimi-K2-Instruct", Kimi},
      {"GLM-4.6", Glm},
  };
  for (const auto& [name, format] : kTemplates) {
    std::ifstream file(std::string(shared_dir() + "/templates/") + name + ".jinja");
    if (!file) GTEST_SKIP() << "no ../shared/templates";
    std::stringstream text;
    text << file.rdbuf();
    EXPECT_EQ(format_name(detect_tool_call_format(text.str())), format_name(format)) << name;
  }
}

TEST(DetectToolCallFormat, ATemplateWithoutToolsHasNone) {
  EXPECT_EQ(detect_tool_call_format("{{ messages[0].content }}"), None);
  EXPECT_EQ(format_name(None), "none");
}

}  // namespace
}  // namespace ktx::text

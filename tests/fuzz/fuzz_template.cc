// Uses fuzzer input as a chat template, or (first byte odd) as a conversation for a template
// that uses most of the language: parses, probes, reports and renders it within the limits.
//
//   cmake --preset fuzz && ninja -C build-fuzz fuzz_template
//   build-fuzz/tests/fuzz/fuzz_template -dict=tests/fuzz/template.dict CORPUS
#include <cstdint>
#include <nlohmann/json.hpp>

#include "lib/text/answers/reasoning.h"
#include "lib/text/answers/tool_calls.h"
#include "lib/text/chat_template/chat_template.h"
#include "lib/text/chat_template/template_probe.h"
#include "lib/text/chat_template/template_report.h"

namespace {

using namespace ktx::text;
using Json = nlohmann::ordered_json;

constexpr const char* kTemplate =
    "{%- macro say(x) -%}{{ x | trim }}{%- endmacro -%}"
    "{%- set ns = namespace(n=0) -%}"
    "{%- for m in messages -%}{%- if m.role == 'user' and not loop.first -%}{% set ns.n = ns.n + 1 "
    "%}"
    "{{ say(m.content) }}{%- elif m.tool_calls is defined -%}{%- for c in m.tool_calls -%}"
    "{{ c.function.arguments | tojson }}{%- endfor -%}{%- else -%}"
    "{{ (m.content or '')[:9].split(' ')[-1] ~ ns.n }}{%- endif -%}{%- endfor -%}"
    "{{ tools | tojson(indent=2) if tools else messages | length }}";

void render(const ChatTemplate& parsed, const Json& messages) {
  RenderInput input;
  input.messages = messages;
  input.bos_token = "<s>";
  input.eos_token = "</s>";
  // A refusal is an answer too.
  (void)parsed.render(input).ok();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 2 || size > 8192) return 0;
  const std::string text(reinterpret_cast<const char*>(data) + 1, size - 1);
  if (data[0] % 2 != 0) {
    static const ChatTemplate parsed = ChatTemplate::parse(kTemplate).take();
    Json messages = Json::parse(text, nullptr, false);
    if (!messages.is_discarded()) render(parsed, messages);
    return 0;
  }
  const ktx::Result<ChatTemplate> parsed = ChatTemplate::parse(text);
  (void)detect_tool_call_format(text);
  (void)detect_reasoning(text);
  if (!parsed.ok()) return 0;
  (void)probe_template(*parsed, "<s>", "</s>");
  if (const auto report = report_template(text, "qwen3")) (void)report_lines(*report);
  render(*parsed, Json::array({{{"role", "system"}, {"content", "a"}},
                               {{"role", "user"}, {"content", "b c"}}}));
  return 0;
}

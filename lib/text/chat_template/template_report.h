// Says what a chat template does: it is code from a stranger that decides what a model reads.
//
//   TemplateReport report = KTX_TRY(report_template(source, "qwen3"));
//   report.fields         content, role, tool_calls, ...       what it reads of messages and tools
//   report.instructions   "You are Qwen, created by ..."       sentences that it adds by itself
//   report.known          "Qwen3"; report.same                 the one that its family is known by
//   report.added          texts that the known one does not have
//
// Found in the text of the template and in a rendering of a plain conversation, with tools and
// without. A text that a template puts together in other cases (reversed, letter by letter) is not
// found there: `added` has its parts, as long as a known template is near. Known templates are
// hashes of their texts (template_facts.def), not the texts themselves.
//
// Safe for untrusted templates.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "lib/support/result.h"

namespace ktx::text {

struct TemplateReport {
  std::string sha256;                  // of the text without white space at its end
  std::vector<std::string> variables;  // that it reads and does not set: messages, tools, ...
  std::vector<std::string> fields;     // attributes, and items with a constant name
  std::vector<std::string> calls;      // functions that it does not define: strftime_now, ...
  std::vector<std::string> instructions;
  std::string known;               // "" where none is near
  bool same = false;               // its text is the known one's
  std::vector<std::string> added;  // in the order of the text
  int missing = 0;                 // texts of the known one that are not there
};

// `architecture`: the GGUF's ("qwen3"), which says what it is compared with; "" or an unknown one:
// the nearest of all. An error is that of ChatTemplate::parse.
Result<TemplateReport> report_template(std::string_view source, std::string_view architecture);

// Hashes of the literals of the template, in order and each once; what template_facts.def stores.
std::vector<uint32_t> literal_hashes(std::string_view source);

// "reads    role, content, ..." in lines, without an empty one; ends with a newline.
std::string report_lines(const TemplateReport& report);

}  // namespace ktx::text

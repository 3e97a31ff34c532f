// JSON input and output of a template: the conversation comes in, `tojson` goes out.
//
//   {'a': [1, 2.0], 'b': "é"} | tojson          ->  {"a": [1, 2.0], "b": "é"}
//
// Output as in HF: json.dumps(ensure_ascii=False), not HTML-escaped, keys in their order.
// Parsing keeps the order of keys, and all digits of integers.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>

#include "lib/support/result.h"
#include "lib/text/chat_template/jinja_value.h"

namespace ktx::text::jinja {

struct JsonStyle {
  bool ensure_ascii = false;
  bool sort_keys = false;
  std::optional<std::string> indent;  // one level of it; none: all on one line
  std::string item_separator = ", ";  // "," by default when indented
  std::string key_separator = ": ";
};

Result<std::string> to_json(Meter& meter, const Value& value, const JsonStyle& style);
// `outside`: its texts come from outside of the template (lib/text/text_spans.h).
Result<Value> from_json(Meter& meter, const nlohmann::ordered_json& json, bool outside = false);
// Messages: all of their texts are from outside, but for the roles, of which there are few, and for
// these parts of what the assistant said.
Result<Value> from_messages(Meter& meter, const nlohmann::ordered_json& messages,
                            std::span<const std::string> answer_tags);

}  // namespace ktx::text::jinja

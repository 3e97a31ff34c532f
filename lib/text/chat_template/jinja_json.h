// JSON input and output of a template: the conversation comes in, `tojson` goes out.
//
//   {'a': [1, 2.0], 'b': "é"} | tojson          ->  {"a": [1, 2.0], "b": "é"}
//
// Output as in HF: json.dumps(ensure_ascii=False), not HTML-escaped, keys in their order.
// Parsing keeps the order of keys; integers must fit in 64 bits.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
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
Result<Value> from_json(Meter& meter, const nlohmann::ordered_json& json);

}  // namespace ktx::text::jinja

// Reads the generic form of calls, in which a whole answer is one JSON object, for models whose
// template knows no tools (tools_as_text.h, grammar/tool_call_schema.h):
//
//   {"response": "Hello!"}                                ->  text Hello!
//   {"tool_call": {"name": "f", "arguments": {}}}         ->  {"name": "f", "arguments": {}}
//   {"tool_calls": [{"name": "f", …}, {"name": "g", …}]}  ->  one after the other
//
// Bare calls are for a ToolCallParser of the Llama 3 form. Any other text is text. The text of a
// response comes as it is said; where a format is asked for, as JSON. One stream; not thread-safe,
// copyable. Safe for any bytes; the outcome does not depend on how the text is cut into pieces.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "lib/text/answers/call_json.h"

namespace ktx::text {

struct GenericDelta {
  std::string text;
  std::string calls;
};

class GenericAnswer {
 public:
  explicit GenericAnswer(bool as_json = false) : as_json_(as_json) {}
  GenericDelta add(std::string_view text);
  // What is held back, when no more text comes. An object that was cut says nothing more.
  GenericDelta finish();

 private:
  enum class Part { Head, Text, Response, Calls, End };
  void read_head(GenericDelta& delta);
  void read_response(GenericDelta& delta);
  void read_calls(GenericDelta& delta);

  const bool as_json_;
  Part part_ = Part::Head;
  std::string said_;                      // the object so far, up to the end of its head
  CallJson json_;                         // of it
  size_t at_ = 0;                         // read of the JSON
  JsonPlace place_;                       // within a value that is passed on
  bool begun_ = false, is_text_ = false;  // of the response: its value, which is a string
  std::string escape_;                    // within the response
  uint32_t high_ = 0;                     // the first half of a pair
};

}  // namespace ktx::text

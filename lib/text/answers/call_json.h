// Reads the JSON of a tool call while it comes and writes it as strict JSON, mended where models
// slip and only one reading is possible:
//
//   {'a': True, "b": "l1<line end>l2", c: [1, 2,]}   ->  {"a": true, "b": "l1\nl2", "c": [1, 2]}
//   {"a": [1, {"b": 2}]                              ->  ... }, with close()
//
// Python's quotes and words, raw control characters and wrong escapes in strings, bare keys,
// commas in front of a closing bracket or missing in front of a key, and brackets that are missing
// where another closes or the text ends. Whatever else is no JSON stops it: a quote within a
// string, a bare word as a value.
//
// json() only grows: what it is while the text comes is the beginning of what it will be. Numbers
// keep their digits. Safe for any bytes; linear in them; for one text, copyable.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace ktx::text {

inline constexpr size_t kMaxCallJsonDepth = 100;

class CallJson {
 public:
  enum class State { More, Whole, Stopped };

  // `text` begins where the JSON does, and goes on where the last one ended.
  State read(std::string_view text);
  // Adds the brackets that are missing. False, and nothing changes, where more than these is.
  bool close();

  State state() const { return state_; }
  size_t at() const { return at_; }  // bytes read; where it stopped
  const std::string& json() const { return out_; }

 private:
  enum class Expect { Value, FirstItem, NextItem, FirstKey, NextKey, Colon, Comma };
  bool step(char c);
  bool step_outside(char c);
  void step_string(char c);
  bool open(char bracket);
  bool shut(char bracket);
  bool end_word();
  void begin_item();
  void write(char c);
  void end_value() { expect_ = Expect::Comma; }
  bool expects_value() const;
  bool expects_key() const { return expect_ == Expect::FirstKey || expect_ == Expect::NextKey; }

  State state_ = State::More;
  Expect expect_ = Expect::Value;
  size_t at_ = 0;
  std::string out_;
  std::string open_;    // brackets
  std::string held_;    // a comma, and white space behind it
  std::string word_;    // a number, a word or a bare key
  std::string escape_;  // within a string: from its backslash on
  char quote_ = 0;      // of the string that is being read
  bool key_ = false;    // it is a key
};

// A place in strict JSON that is read byte by byte: within a string or not, and how many brackets
// are open; below 0 where one closes that was open before the first byte.
struct JsonPlace {
  int depth = 0;
  bool in_string = false, escaped = false;
  void step(char c);
};

// JSON without the white space between its parts.
std::string compact_json(std::string_view json);

// JSON for a word of JSON or Python: true, None, 1.5; "" for any other.
std::string json_of_word(std::string_view word);

}  // namespace ktx::text

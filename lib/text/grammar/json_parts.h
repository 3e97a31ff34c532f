// Building blocks of JSON text for schemas.
//
// The allowed text is JSON as models write it, and always parses: between the parts of objects
// and arrays nothing, one space, or one line end and an indentation of up to 20; a space behind
// a colon; numbers of up to 40 digits before the point and 16 behind it, with exponents of two
// digits, which fit a double.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "lib/text/grammar/grammar_rules.h"

namespace ktx::text::grammar {

class JsonParts {
 public:
  explicit JsonParts(GrammarRules& rules) : g_(rules) {}

  int space();
  int character();      // of a string: as it is or escaped
  int raw_character();  // of a string, not escaped
  int string(int min, int max);
  int integer();
  int number();
  int boolean() { return g_.alternatives({g_.text("true"), g_.text("false")}); }
  int null() { return g_.text("null"); }
  int any_value();
  int any_object();
  int any_array();

  // "{", members, "}": from an expression for the members that may match nothing.
  int object(int members) { return bracketed("{", members, "}"); }
  int array(int items) { return bracketed("[", items, "]"); }
  int member(int key, int value);
  int separator();  // "," and white space
  // A key (with its quotes) that is none of these names.
  int other_key(const std::vector<std::string>& names);

 private:
  int bracketed(std::string_view open, int inner, std::string_view close);

  GrammarRules& g_;
  int space_ = -1, character_ = -1, raw_ = -1, any_ = -1, separator_ = -1;
};

// `text` as a JSON string with its quotes.
std::string json_quoted(std::string_view text);

}  // namespace ktx::text::grammar

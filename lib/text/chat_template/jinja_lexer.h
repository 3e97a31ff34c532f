// Splits a chat template into text and the tokens of its tags.
//
//   "Hi {{ name -}}  !"   ->   Text "Hi "  VariableBegin  Name "name"  VariableEnd  Text "!"
//
// White space follows Jinja2 with HF's settings: trim_blocks (the newline after
// a block tag or comment goes), lstrip_blocks (blanks before one go when nothing
// else is on the line), `-` strips all, `+` keeps all; one newline at the end of
// the template goes; \r\n and \r become \n. Comments and raw blocks are resolved
// here. Safe for any bytes, linear in their number.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "lib/support/result.h"
#include "lib/text/chat_template/jinja_ast.h"

namespace ktx::text::jinja {

enum class TokenKind : uint8_t {
  Text,
  VariableBegin,
  VariableEnd,
  BlockBegin,
  BlockEnd,
  Name,
  String,
  Integer,
  Float,
  Operator,
  End,
};

struct Token {
  TokenKind kind;
  Loc loc;
  std::string text;  // String: unescaped; Integer, Float: without underscores

  bool is(TokenKind k, std::string_view t) const { return kind == k && text == t; }
  bool is_name(std::string_view t) const { return is(TokenKind::Name, t); }
  bool is_operator(std::string_view t) const { return is(TokenKind::Operator, t); }
};

// The last token is End. Errors read "chat template:LINE:COL: message".
Result<std::vector<Token>> lex(std::string_view source);

Error error_at(Loc loc, std::string_view message);

}  // namespace ktx::text::jinja

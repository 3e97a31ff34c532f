// Parses a chat template into its syntax tree.
//
//   Body body = KTX_TRY(parse_template("{% if x %}{{ x | trim }}{% endif %}"));
//
// The grammar is Jinja2's with the loop controls and HF's `generation` block. Templates that
// read other templates (include, import, extends) are refused. An unknown filter or test is an
// error here; inside a condition (`{% if %}`, `a if b`) it is an error only when it is reached,
// as in Jinja2. Safe for any bytes; nesting is bounded by kMaxTemplateDepth.
#pragma once

#include <string_view>

#include "lib/support/result.h"
#include "lib/text/chat_template/jinja_ast.h"

namespace ktx::text::jinja {

Result<Body> parse_template(std::string_view source);

}  // namespace ktx::text::jinja

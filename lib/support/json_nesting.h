// How deep JSON text is nested, found before it is parsed: values made of it are used
// recursively, so that hostile text must be refused first.
//
//   if (json_nesting(text) > 64) return Error{"nested too deep"};
#pragma once

#include <string_view>

namespace ktx {

// The most brackets open at once, outside of strings. Any bytes will do: what is no JSON
// is found out by the parser.
int json_nesting(std::string_view text);

}  // namespace ktx

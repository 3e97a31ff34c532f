// Columns that a text occupies in a terminal.
//
//   display_width("llama")  -> 5
//   display_width("通义")    -> 4: two columns each
//   display_width("é")      -> 1, also when it is e with a combining accent
//
// Uses its own tables of ranges, because the C library's need a locale. A byte that is not
// UTF-8 counts as one column.
#pragma once

#include <cstddef>
#include <string_view>

namespace ktx {

size_t display_width(std::string_view text);

}  // namespace ktx

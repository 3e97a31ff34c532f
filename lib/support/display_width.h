// Columns that a text takes in a terminal.
//
//   display_width("llama")  -> 5
//   display_width("通义")    -> 4: two columns each
//   display_width("é")      -> 1, also when it is e with a combining accent
//
// Tables of ranges instead of the C library's, which knows nothing where no locale is set.
// A byte that is no UTF-8 counts as one column.
#pragma once

#include <cstddef>
#include <string_view>

namespace ktx {

size_t display_width(std::string_view text);

}  // namespace ktx

// Lines of small files that people write: settings, keys.
#pragma once

#include <string_view>

namespace ktx {

// A line without blanks around it and without its note, which begins with '#' at the start or
// behind a blank, outside of double quotes.
std::string_view without_note(std::string_view line);

}  // namespace ktx

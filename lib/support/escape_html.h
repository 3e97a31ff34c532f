// Text as it stands in HTML: the five characters that have a meaning there, as references.
#pragma once

#include <string>
#include <string_view>

namespace ktx {

std::string escape_html(std::string_view text);

}  // namespace ktx

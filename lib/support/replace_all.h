// Words in a text for others: replace_all(message, "/srv/models", "the models' folder").
#pragma once

#include <string>
#include <string_view>

namespace ktx {

// Each `from`; what `to` brings in is not looked at again, so that it may contain `from`.
std::string replace_all(std::string text, std::string_view from, std::string_view to);

}  // namespace ktx

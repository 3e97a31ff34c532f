// Words of the step graph's text form, shared by print and parse.
#pragma once

#include <string>
#include <string_view>

namespace ktx::program {

// The name itself, or "..." with \" \\ and \xNN escapes when it holds anything
// but letters, digits and ._-/ (or is empty).
std::string quote(std::string_view name);

}  // namespace ktx::program

// Options of other programs, with the equivalent here.
#pragma once

#include <string>
#include <string_view>

namespace ktx::tools {

// `tool`: "compile" or "run". "" when the option is not known.
std::string foreign_flag_advice(std::string_view tool, std::string_view flag);

}  // namespace ktx::tools

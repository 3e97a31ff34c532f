// The end of a message about an output: the cause, and what to do about it.
//
//   Error{fmt::format("{}: cannot write: {}", path, write_failure(errno))}
//   m.ktxplan: cannot write: no space left on the device; free some or write elsewhere
#pragma once

#include <string>

namespace ktx {

std::string write_failure(int error_number);

}  // namespace ktx

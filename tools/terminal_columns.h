// The width of the terminal, for lines that must not wrap.
#pragma once

#include <cstddef>

namespace ktx::tools {

// The columns of the terminal `fd` as it is now; 80 if it does not say.
size_t terminal_columns(int fd);

}  // namespace ktx::tools

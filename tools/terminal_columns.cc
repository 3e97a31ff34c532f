#include "tools/terminal_columns.h"

#include <sys/ioctl.h>

namespace ktx::tools {

size_t terminal_columns(int fd) {
  winsize size = {};
  return ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 1 ? size.ws_col : 80;
}

}  // namespace ktx::tools

// Start and end of a tool: if output could not be written, the exit status and a message say
// so.
//
//   int main(int argc, char** argv) {
//     return ktx::tools::run_tool("ktx-compile", [&] { return run(argc, argv); });
//   }
//
//   ktx-compile --tokenize prompt.txt model.gguf > /dev/full
//   ktx-compile: error: cannot write to standard output: no space left on the device; ...
#pragma once

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <new>
#include <string>
#include <system_error>

#include "lib/support/write_failure.h"

namespace ktx::tools {

// A tool that was started with a closed standard file (`>&-`) would get its number for the
// next file that it opens, and print into a plan. What stands in for the input and the output
// fails as a closed one; diagnostics go nowhere.
inline void hold_standard_files() {
  constexpr int kFlags[] = {O_WRONLY, O_RDONLY, O_WRONLY};
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (fcntl(fd, F_GETFD) < 0 && errno == EBADF) (void)!open("/dev/null", kFlags[fd]);
  }
}

// To stderr, which may be closed or full itself: then the message is lost.
inline void say_error(const char* tool, const std::string& message) {
  std::fputs(fmt::format("{}: error: {}\n", tool, message).c_str(), stderr);
}

inline int finish(const char* tool, int status) {
  errno = 0;
  if (std::fflush(stdout) == 0 && !std::ferror(stdout)) return status;
  // Where it failed earlier, the cause is forgotten: one byte more meets it again.
  if (errno == 0) (void)!write(STDOUT_FILENO, "\n", 1);
  say_error(tool, "cannot write to standard output" +
                      (errno != 0 ? ": " + write_failure(errno) : std::string()));
  return status == 2 ? 2 : 1;
}

// A reader that ends early (`| head`) is an error like a full disk, not a signal. Printing
// throws where the C library reports an error.
template <class Body>
int run_tool(const char* tool, const Body& body) {
  hold_standard_files();
  signal(SIGPIPE, SIG_IGN);
  try {
    return finish(tool, body());
  } catch (const std::system_error& error) {
    if (!std::ferror(stdout)) say_error(tool, error.what());
    return finish(tool, 1);
  } catch (const std::bad_alloc&) {
    say_error(tool, "out of memory; free some, or raise the limit (ulimit -v)");
    return finish(tool, 1);
  }
}

}  // namespace ktx::tools

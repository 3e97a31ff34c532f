// Starts another program of ktx and waits for it: ktx-run has no compiler in it, and neither it nor
// ktx-compile has anything that connects to a network.
//
//   const std::string compiler = KTX_TRY(find_program("ktx-compile"));
//   const ChildEnd end = KTX_TRY(run_child({compiler, {"m.gguf", "-o", "m.ktxplan"}}));
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lib/support/result.h"

namespace ktx::tools {

// The file in the folder of the running program, else in one of PATH. A message says where it was
// looked for.
Result<std::string> find_program(const std::string& name);

struct ChildProgram {
  std::string path;
  std::vector<std::string> arguments = {};
  int open_file = -1;        // stays open in it; -1: none
  bool keep_output = false;  // what it prints is the result; else that goes to stderr
};

struct ChildEnd {
  int status = 0;      // exit status; 128 + signal where one ended it
  int signal = 0;      // that this program was sent meanwhile; 0: none
  std::string output;  // with keep_output
};

// It reads nothing from standard input. SIGINT, SIGTERM and SIGHUP are passed on, and this program
// goes on when the child has ended; a caller that sees `signal` ends itself then. For programs of
// one thread: another one could take the signal of the child's end.
Result<ChildEnd> run_child(const ChildProgram& child);

// The same in a program that has threads, and signals of its own: the child gets none of its open
// files, and is ended once `stop`, which is called often, says so. `line` sees what it writes to
// stderr; what it prints is the result. `environment` ("NAME=VALUE") stands before this program's
// own.
Result<ChildEnd> watch_child(const ChildProgram& child, std::vector<std::string> environment,
                             const std::function<bool()>& stop,
                             const std::function<void(std::string_view)>& line);

// "a 'b c' \"d\"" -> a, "b c", d: as a shell cuts words, without its other signs. Nothing where a
// quote is left open.
std::optional<std::vector<std::string>> words_of(std::string_view text);

}  // namespace ktx::tools

// LLVM's command line prints help through streams of its own and ends the program there. One
// that could not write aborts at the end; here it is an error like any other of finish.h.
//
//   watch_llvm_streams("ktx-run");   // before options are parsed
//
// Included by the options of each tool, which alone know LLVM.
#pragma once

#include <llvm/Support/raw_ostream.h>
#include <unistd.h>

#include <cstdlib>

#include "lib/support/write_failure.h"
#include "tools/finish.h"

namespace ktx::tools {

inline void watch_llvm_streams(const char* tool) {
  static const char* name = nullptr;
  name = tool;
  // Made first, so that they end after the function that is called here at the end.
  llvm::outs();
  llvm::errs();
  std::atexit([] {
    llvm::outs().flush();
    const std::error_code error = llvm::outs().error();
    llvm::outs().clear_error();
    llvm::errs().clear_error();
    if (!error) return;
    say_error(name, "cannot write to standard output: " + write_failure(error.value()));
    _exit(1);
  });
}

}  // namespace ktx::tools

// Takes from this process what it does not need, so that a mistake in it is worth less to who finds
// one. Linux: Landlock for files (kernel 5.13), seccomp for system calls (by libseccomp).
//
//   KTX_TRY(restrict_files({.read = {"models"}, .write = {"slots"}}));   // before any thread
//   ... open ports, start threads ...
//   KTX_TRY(restrict_calls());
//
// Neither can be undone, and children inherit both. Fails where the kernel or the build has none;
// then nothing is restricted.
#pragma once

#include <string>
#include <vector>

#include "lib/support/result.h"

namespace ktx {

// Files, and folders with all that is below them. What does not exist is passed over; links are
// followed. What every program needs (libraries, /proc, GPUs) is readable, too.
struct SandboxPaths {
  std::vector<std::string> read;
  std::vector<std::string> write;  // and read, made, renamed and removed
};
// The folder that a file is in, and the one that it lies in where it is a link.
void add_folders_of(const std::string& file, std::vector<std::string>& folders);

// Restricts this thread and those that it will start.
Status restrict_files(const SandboxPaths& paths);

// Restricts all threads: no programs, no new sockets, connections or listening ports, no tracing,
// mounts, namespaces, kernel modules, BPF or io_uring. Those calls fail with EPERM from here on.
Status restrict_calls();

// For a process that reads what strangers send and computes: leaves all threads memory, what is
// open to read and write, and their end. Other calls fail with EPERM. Needs seccomp alone.
Status restrict_to_computing();

}  // namespace ktx

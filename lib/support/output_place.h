// Resolves the path of an output through all symbolic links.
//
//   OutputPlace place = KTX_TRY(find_output("out"));   // out -> plans/m.ktxplan
//   place.path                                         // "/home/me/plans/m.ktxplan"
//
// A rename onto "out" would replace the link, and one onto "/dev/stdout" the machine's device
// link. So outputs are renamed onto `path`, which is a regular file or nothing, in a folder
// outside /dev (except /dev/shm), /proc and /sys. Pipes, terminals, /dev/null, /dev/full and
// the open files of this process (/dev/stdout) are streams: callers write to them, or refuse
// them if they need a file. Other devices, sockets and folders are refused here.
//
// Hard links to the old file keep its content. Dangling links are followed too: the file is
// created at their target.
#pragma once

#include <string>
#include <string_view>

#include "lib/support/result.h"

namespace ktx {

struct OutputPlace {
  enum class Kind { Nothing, File, Stream };

  Kind kind = Kind::Nothing;
  std::string given;   // for messages
  std::string path;    // without links; of a stream: what to open
  int open_file = -1;  // of a stream that this process has open already: its number
};

// Looks only. Fails when nothing may be written there; the message begins with `path`.
Result<OutputPlace> find_output(const std::string& path);

// A file descriptor to write to: a file in place, made where there is none, with `flags` of
// open(); a stream without waiting for its reader. -1 and errno.
int open_output(const OutputPlace& place, int flags);

// All of it. 0, or the error's number.
int write_all(int fd, std::string_view bytes);

// Brings names that were made, changed or removed in the folder of `path` to the disk. A file
// system that cannot do it keeps them in its own time.
void sync_folder_of(const std::string& path);

// "PATH", or "PATH (a link to REAL)" where links were followed.
std::string describe(const OutputPlace& place);

}  // namespace ktx

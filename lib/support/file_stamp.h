// What the system says of a file, to tell whether it is still the one that was opened.
//
//   const FileStamp stamp = KTX_TRY(stamp_file(path));   // before its first byte is read
//   ...
//   KTX_TRY(check_unchanged(path, stamp));               // behind the last one
//
// A write changes `changed_ns`, which no program can set back, also where size and `modified_ns`
// are as before (`cp -p`, `touch -d`, files of an archive that all have one time).
#pragma once

#include <cstdint>
#include <string>

#include "lib/support/result.h"

namespace ktx {

struct FileStamp {
  uint64_t device = 0, inode = 0, size = 0;
  int64_t modified_ns = 0, changed_ns = 0;
  bool operator==(const FileStamp&) const = default;
};

Result<FileStamp> stamp_file(const std::string& path);

// "PATH: the file was changed or replaced while it was read; ..." A file that was removed has kept
// its bytes for those that had it open.
Status check_unchanged(const std::string& path, const FileStamp& stamp);

}  // namespace ktx

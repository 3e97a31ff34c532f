// A file whose contents are moved elsewhere part by part: the blocks of each part go back to the
// disk as soon as it is safe in its new place.
//
//   MovedFile file = KTX_TRY(MovedFile::open("m.gguf"));   // all that could be in the way
//   KTX_TRY(file.begin());                                 // m.gguf -> m.gguf.moving
//   KTX_TRY(file.release(begin, end));                     // of bytes that are on the disk
//   KTX_TRY(file.remove());                                // when all of it is elsewhere
//
// Released bytes read as zeros, so from begin() on the file has another name: no program that is
// given m.gguf takes half of it for the whole. Destroyed before its first release, the file gets
// its name back. A killed process leaves m.gguf.moving, and the next one opens it by its old name.
//
// open() refuses, before anything is changed: links and files with several names, whose other users
// would lose the contents; files or folders that cannot be written to; files that another process
// has open; file systems that cannot punch holes (FALLOC_FL_PUNCH_HOLE).
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <string>

#include "lib/support/result.h"

namespace ktx {

inline constexpr char kMovingSuffix[] = ".moving";

class MovedFile {
 public:
  // `path` is the file's own name also where it has been begun.
  static Result<MovedFile> open(const std::string& path);
  MovedFile(MovedFile&&) noexcept;
  MovedFile& operator=(MovedFile&&) = delete;
  ~MovedFile();

  const std::string& path() const { return path_; }
  bool begun() const { return begun_; }
  // Whether it does not get its old name back: a release was tried, in whichever process.
  bool stays() const { return begun_ && (!renamed_ || released_ever_); }
  uint64_t size() const;
  uint64_t disk_bytes() const;  // of its blocks
  dev_t device() const;
  // The first place from `offset` on that is no hole; the size where there is none.
  uint64_t next_data(uint64_t offset) const;
  // Whether nothing of it was released, in any process. False as well where the file had holes of
  // its own, or the file system counts fewer blocks than bytes.
  bool has_all_blocks() const;

  // Gives it the name PATH.moving, on the disk as well, also where it has the name already.
  Status begin();
  // Gives back the blocks that lie wholly in the bytes released so far; any range, in any order,
  // also again. Fails, with nothing released, where the file was written to since open().
  Status release(uint64_t begin, uint64_t end);
  Status remove();

 private:
  MovedFile(std::string path, bool begun, int fd);
  std::string name() const { return begun_ ? path_ + kMovingSuffix : path_; }
  Error error(std::string_view what, int error_number) const;
  Status check_unchanged() const;
  void note_time();

  std::string path_;
  bool begun_ = false, renamed_ = false, released_ever_ = false;
  int fd_ = -1;
  uint64_t block_ = 4096;
  int64_t modified_ns_ = 0;
  std::map<uint64_t, uint64_t> released_;  // begin to end, apart from each other
};

}  // namespace ktx

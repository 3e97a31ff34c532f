// A file being written: TARGET.work beside its target, locked, and renamed onto the target when
// it is complete.
//
//   WorkFile file = KTX_TRY(WorkFile::open("m.ktxplan", "KTXPLAN"));
//   KTX_TRY(file.reserve(size));          // a full disk is an error here, not later
//   KTX_TRY(file.write(0, bytes));        // from several threads at once, as fast as they are
//   KTX_TRY(file.commit());               // fsync, rename, fsync of the folder
//
// One process at a time: a second one fails at once. The target is untouched until commit();
// without commit() the work file is removed. A killed process leaves its work file, and the
// next process opens it as it is (size() > 0).
//
// An existing target is replaced only if it is empty or begins with `magic`: `ktx-compile
// m.gguf -o m.gguf` must not destroy the model. The new file gets its permissions. A symbolic
// link stays, and its target is replaced (output_place.h); the work file is beside that target.
// Pipes and devices are refused: write_file.h writes to them.
//
// Another `suffix` than ".work" is for work files that other writers of the target must not start
// over: those that hold the only copy of what is in them (moved_file.h).
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>

#include "lib/support/output_place.h"
#include "lib/support/result.h"

namespace ktx {

class WorkFile {
 public:
  // A `magic` of "" is any file's. `mode` is that of a new file, less the umask.
  static Result<WorkFile> open(const std::string& target, std::string_view magic,
                               mode_t mode = 0666, std::string_view suffix = ".work");
  WorkFile(WorkFile&&) noexcept;
  WorkFile& operator=(WorkFile&&) = delete;
  ~WorkFile();

  const std::string& target() const { return place_.given; }
  std::string path() const { return place_.path + suffix_; }
  uint64_t size() const;
  // Makes the file this large, with its space on the disk, in zeros where nothing was
  // written. Fails with needed and free bytes.
  Status reserve(uint64_t bytes);
  // Whether a file of `bytes` may be written and has space on the disk, where `given_back` bytes
  // become free while it is.
  Status check_space(uint64_t bytes, uint64_t given_back = 0) const;
  Status truncate(uint64_t bytes);
  // The time of the last write, until the next one: seconds since 1970.
  Status set_written(int64_t seconds);
  // Any of the calls at a time goes through the system, which has one writer of a file at a
  // time: the others copy into the file's memory (of what reserve() has reserved). With four
  // threads that all go through the system, a file in memory got 1.0 GB/s and they spent 3
  // of 4 seconds waiting.
  Status write(uint64_t offset, std::span<const std::byte> bytes);
  Status read(uint64_t offset, std::span<std::byte> bytes) const;
  Status sync();
  // Whether the work file stays without commit(), for the next process.
  void leave(bool stay = true) { left_ = stay; }
  // Without `sync` a crash of the machine may leave it empty: for files of tests.
  Status commit(bool sync = true);

 private:
  WorkFile(OutputPlace place, std::string_view suffix, int fd)
      : place_(std::move(place)), suffix_(suffix), fd_(fd) {}
  bool copy_into_memory(uint64_t offset, std::span<const std::byte> bytes);
  Error error(std::string_view what, int error_number) const;

  OutputPlace place_;
  std::string suffix_;
  int fd_ = -1;
  std::unique_ptr<std::mutex> writing_ = std::make_unique<std::mutex>();  // who may wait for none
  bool committed_ = false;
  bool left_ = false;
};

}  // namespace ktx

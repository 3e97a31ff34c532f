// Reads pieces of a file past the page cache, many at once.
//
//   auto reader = KTX_TRY(open_direct_reader(path, [&](uint32_t ticket, int error) { ... }));
//   reader->read({{.offset = 8192, .bytes = 884736, .to = slot, .ticket = 7}});   // returns at
//   once
//
// Through io_uring where the kernel lets us, else by threads with pread: containers often forbid
// io_uring, and a sandbox does so while the reader is in use (lib/support/sandbox.h), from where on
// threads read. A file system without direct reads (O_DIRECT) is read through its cache.
//
// The answers come on threads of the reader's, one at a time or several, in any order. Destroying
// it waits for the reads that have begun and drops the others without an answer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "lib/support/file_stamp.h"
#include "lib/support/result.h"

namespace ktx::runtime {

// Offset, bytes and address are multiples of plan::kDirectBlock.
struct DirectRead {
  uint64_t offset = 0;
  uint64_t bytes = 0;
  uint64_t needed = 0;  // of these at least; the file may end behind them
  std::byte* to = nullptr;
  uint32_t ticket = 0;
};

// 0, or a number of errno; kFileEnds: the file has fewer bytes than are needed.
inline constexpr int kFileEnds = -1;
using ReadDone = std::function<void(uint32_t ticket, int error)>;

class DirectReader {
 public:
  virtual ~DirectReader() = default;
  virtual void read(std::span<const DirectRead> reads) = 0;
  // Gives the answers that have come by now, on this thread, where that saves a change of threads.
  virtual void poll() {}
  // Answers the reads that have not begun with ECANCELED, on this thread.
  virtual void drop() = 0;
  virtual std::string_view name() const = 0;  // "io_uring", "threads"
};

enum class ReaderKind { Auto, Ring, Threads };
struct ReaderOptions {
  ReaderKind kind = ReaderKind::Auto;
  const FileStamp* stamp = nullptr;  // what the file must still be; null: any
  // For tests: an error instead of a read; 0: none. Called on any thread.
  std::function<int(const DirectRead&)> fault = {};
};
Result<std::unique_ptr<DirectReader>> open_direct_reader(const std::string& path, ReadDone done,
                                                         ReaderOptions options = {});

// What a reader is made of; direct_reader.cc.
struct OpenedFile {
  int fd = -1;
  ReadDone done;
  std::function<int(const DirectRead&)> fault;
};
// Null where the kernel or the build has no io_uring.
std::unique_ptr<DirectReader> open_ring_reader(const OpenedFile& file);
std::unique_ptr<DirectReader> open_thread_reader(const OpenedFile& file);

// Reads with pread until the needed bytes are there.
int read_by_call(const OpenedFile& file, const DirectRead& read);

}  // namespace ktx::runtime

#include "lib/runtime/experts/direct_reader.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "lib/plan/expert_memory.h"

namespace ktx::runtime {
namespace {

class ClosesFile final : public DirectReader {
 public:
  ClosesFile(int fd, std::unique_ptr<DirectReader> reader) : fd_(fd), reader_(std::move(reader)) {}
  ~ClosesFile() override {
    reader_.reset();
    ::close(fd_);
  }
  void read(std::span<const DirectRead> reads) override { reader_->read(reads); }
  void poll() override { reader_->poll(); }
  void drop() override { reader_->drop(); }
  std::string_view name() const override { return reader_->name(); }

 private:
  int fd_;
  std::unique_ptr<DirectReader> reader_;
};

int open_direct(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_DIRECT);
  if (fd >= 0 || errno != EINVAL) return fd;
  return ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
}

}  // namespace

int read_by_call(const OpenedFile& file, const DirectRead& read) {
  uint64_t got = 0;
  while (got < read.needed) {
    const ssize_t n =
        ::pread(file.fd, read.to + got, read.bytes - got, static_cast<off_t>(read.offset + got));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return errno;
    const uint64_t now = got + static_cast<uint64_t>(n);
    if (now >= read.needed) break;
    const uint64_t whole = now / plan::kDirectBlock * plan::kDirectBlock;
    if (whole == got) return kFileEnds;
    got = whole;
  }
  return file.fault ? file.fault(read) : 0;
}

Result<std::unique_ptr<DirectReader>> open_direct_reader(const std::string& path, ReadDone done,
                                                         ReaderOptions options) {
  OpenedFile file{open_direct(path), std::move(done), std::move(options.fault)};
  if (file.fd < 0) {
    return Error{fmt::format("{}: cannot open: {}", path, std::strerror(errno))};
  }
  std::unique_ptr<DirectReader> reader;
  if (options.kind != ReaderKind::Threads) reader = open_ring_reader(file);
  if (!reader && options.kind == ReaderKind::Ring) {
    ::close(file.fd);
    return Error{fmt::format("{}: the system has no io_uring for this process", path)};
  }
  if (!reader) reader = open_thread_reader(file);
  auto closes = std::make_unique<ClosesFile>(file.fd, std::move(reader));
  if (options.stamp) KTX_TRY(check_unchanged(path, *options.stamp));
  return std::unique_ptr<DirectReader>(std::move(closes));
}

}  // namespace ktx::runtime

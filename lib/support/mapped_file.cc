#include "lib/support/mapped_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>
#include <vector>

#include "lib/support/near_files.h"
#include "lib/support/result.h"
#include "lib/support/sigbus_guard.h"
#include "lib/support/thread_pool.h"

namespace ktx {
namespace {

Error file_error(const std::string& path, const char* what) {
  return Error{fmt::format("{}: {}: {}", path, what, std::strerror(errno))};
}

}  // namespace

struct MappedFile::Mapping {
  std::string path;
  void* data = nullptr;
  size_t size = 0;
  std::optional<SigbusGuard> guard;
  bool copied = false;  // data is memory of our own, and access hints would lose it
  // What is mapped: data may stand inside of it.
  void* mapped = nullptr;
  size_t mapped_size = 0;
  std::vector<Piece> pieces;  // of a spread file: all else is zeros

  ~Mapping() { release(); }
  void release() {
    guard.reset();
    if (mapped) munmap(mapped, mapped_size);
    mapped = nullptr;
  }
};

MappedFile::MappedFile(std::unique_ptr<Mapping> mapping) : mapping_(std::move(mapping)) {}
MappedFile::MappedFile(MappedFile&&) noexcept = default;
MappedFile& MappedFile::operator=(MappedFile&&) noexcept = default;
MappedFile::~MappedFile() = default;

Result<MappedFile> MappedFile::open(const std::string& path) {
  // A pipe without a writer would block before it can be distinguished from a file.
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) {
    const bool missing = errno == ENOENT;
    Error error = file_error(path, "cannot open");
    const std::string nearest = missing ? nearest_file(path) : "";
    if (!nearest.empty()) error.message += fmt::format("; did you mean '{}'?", nearest);
    return error;
  }
  struct stat info = {};
  if (fstat(fd, &info) != 0) {
    const Error error = file_error(path, "cannot read");
    ::close(fd);
    return error;
  }
  if (!S_ISREG(info.st_mode)) {
    ::close(fd);
    return Error{
        fmt::format("{}: {}", path,
                    S_ISDIR(info.st_mode) ? "is a folder, expected a file" : "not a regular file")};
  }
  if (info.st_size == 0) {
    ::close(fd);
    return Error{fmt::format("{}: the file is empty", path)};
  }
  auto mapping = std::make_unique<Mapping>();
  mapping->path = path;
  void* data = mmap(nullptr, info.st_size, PROT_READ, MAP_SHARED, fd, 0);
  const int map_errno = errno;
  ::close(fd);
  if (data == MAP_FAILED) {
    errno = map_errno;
    return file_error(path, "cannot map");
  }
  mapping->data = mapping->mapped = data;
  mapping->size = mapping->mapped_size = info.st_size;
  mapping->guard.emplace(data, mapping->size, /*writable=*/false);
  return MappedFile(std::move(mapping));
}

namespace {

// Whether programs may ask for huge pages; an error that says how they can.
Status huge_pages_allowed() {
  const char* const kSetting = "/sys/kernel/mm/transparent_hugepage/enabled";
  const int fd = ::open(kSetting, O_RDONLY | O_CLOEXEC);
  char text[64] = {};
  if (fd >= 0) (void)!::read(fd, text, sizeof text - 1);
  if (fd >= 0) ::close(fd);
  if (std::strstr(text, "[always]") || std::strstr(text, "[madvise]")) return {};
  return Error{
      fmt::format("the system gives programs no huge pages; write `madvise` to {}, or "
                  "leave --huge-pages out",
                  kSetting)};
}

}  // namespace

Status MappedFile::copy_to_huge_pages(int threads) {
  constexpr size_t kHugePage = 2u << 20;
  constexpr size_t kPiece = 4 * kHugePage;
  KTX_TRY(huge_pages_allowed());
  Mapping& m = *mapping_;
  const size_t room = (m.size + kHugePage - 1) / kHugePage * kHugePage;
  const size_t all = room + kHugePage;
  const int reserve = m.pieces.empty() ? 0 : MAP_NORESERVE;  // most of it stays zeros
  void* mapped =
      mmap(nullptr, all, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | reserve, -1, 0);
  if (mapped == MAP_FAILED) return file_error(m.path, "no memory for a copy in huge pages");
  const auto begin = (reinterpret_cast<uintptr_t>(mapped) + kHugePage - 1) / kHugePage * kHugePage;
  char* to = reinterpret_cast<char*>(begin);
  (void)madvise(to, room, MADV_HUGEPAGE);
  const char* from = static_cast<const char*>(m.data);
  ThreadPool pool(threads);
  const Piece whole{0, 0, m.size};
  for (const Piece& piece : m.pieces.empty() ? std::span(&whole, 1) : std::span(m.pieces)) {
    pool.for_each(static_cast<int64_t>((piece.size + kPiece - 1) / kPiece), [&](int64_t i, int) {
      const size_t at = static_cast<size_t>(i) * kPiece;
      std::memcpy(to + piece.offset + at, from + piece.offset + at,
                  std::min<size_t>(kPiece, piece.size - at));
    });
  }
  if (const Status complete = check(); !complete) {
    munmap(mapped, all);
    return complete;
  }
  (void)mprotect(mapped, all, PROT_READ);
  m.release();
  m.mapped = mapped;
  m.mapped_size = all;
  m.data = to;
  m.copied = true;
  return {};
}

void MappedFile::narrow(size_t offset, size_t size) {
  KTX_ASSERT(offset % 4096 == 0 && offset <= mapping_->size && size <= mapping_->size - offset);
  mapping_->data = static_cast<char*>(mapping_->data) + offset;
  mapping_->size = size;
  mapping_->pieces.clear();
}

Status MappedFile::spread(uint64_t size, std::span<const Piece> pieces) {
  constexpr uint64_t kPage = 4096;
  const auto pages = [](uint64_t bytes) { return (bytes + kPage - 1) / kPage * kPage; };
  Mapping& m = *mapping_;
  uint64_t at = 0, offset = 0;
  for (const Piece& piece : pieces) {
    KTX_ASSERT(piece.at % kPage == 0 && piece.offset % kPage == 0);
    KTX_ASSERT(piece.at >= at && piece.at <= m.size && piece.size <= m.size - piece.at);
    KTX_ASSERT(piece.offset >= offset && piece.offset <= size && piece.size <= size - piece.offset);
    at = piece.at + pages(piece.size);
    offset = piece.offset + pages(piece.size);
  }
  void* const room =
      mmap(nullptr, size, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (room == MAP_FAILED) return file_error(m.path, "cannot map");
  m.guard.reset();
  for (const Piece& piece : pieces) {
    if (piece.size == 0) continue;
    const size_t length = pages(piece.size);
    void* const moved =
        mremap(static_cast<char*>(m.data) + piece.at, length, length, MREMAP_MAYMOVE | MREMAP_FIXED,
               static_cast<char*>(room) + piece.offset);
    if (moved != MAP_FAILED) continue;
    const Error error = file_error(m.path, "cannot map");
    munmap(room, size);
    return error;
  }
  m.release();
  m.data = m.mapped = room;
  m.size = m.mapped_size = size;
  m.pieces.assign(pieces.begin(), pieces.end());
  m.guard.emplace(room, size, /*writable=*/false);
  return {};
}

std::span<const std::byte> MappedFile::bytes() const {
  return {static_cast<const std::byte*>(mapping_->data), mapping_->size};
}

const std::string& MappedFile::path() const {
  return mapping_->path;
}

bool MappedFile::shrunk() const {
  return mapping_->guard && mapping_->guard->hit();
}

Status MappedFile::check() const {
  if (!shrunk()) return {};
  return Error{fmt::format(
      "{}: the file became smaller or its disk failed while it was in use; restore it and start "
      "again",
      path())};
}

namespace {
void advise(void* data, size_t size, size_t offset, size_t length, int advice) {
  const size_t page_bytes = 4096;
  const size_t begin = offset & ~(page_bytes - 1);
  if (begin >= size) return;
  madvise(static_cast<char*>(data) + begin, std::min(length + (offset - begin), size - begin),
          advice);
}
}  // namespace

void MappedFile::advise_huge_pages() const {
  if (mapping_->copied) return;
  advise(mapping_->data, mapping_->size, 0, mapping_->size, MADV_HUGEPAGE);
}
void MappedFile::advise_will_need(size_t offset, size_t size) const {
  if (mapping_->copied) return;
  advise(mapping_->data, mapping_->size, offset, size, MADV_WILLNEED);
}
void MappedFile::advise_dont_need(size_t offset, size_t size) const {
  if (mapping_->copied) return;
  advise(mapping_->data, mapping_->size, offset, size, MADV_DONTNEED);
}

Result<std::string> read_text_file(const std::string& path, size_t limit_bytes) {
  MappedFile file = KTX_TRY(MappedFile::open(path));
  if (file.bytes().size() > limit_bytes) {
    return Error{fmt::format("{}: the file has {} bytes, more than the {} allowed here", path,
                             file.bytes().size(), limit_bytes)};
  }
  std::string text(reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size());
  KTX_TRY(file.check());
  return text;
}

}  // namespace ktx

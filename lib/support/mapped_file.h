// A file mapped read-only, whole or a part of it.
//
// A file that shrinks while it is mapped, or a disk that fails, would end the program with SIGBUS.
// Here a missing page and all behind it read as zeros and shrunk() becomes true: check it after
// reading weights, and do not use what was read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "lib/support/result.h"

namespace ktx {

class MappedFile {
 public:
  // Fails with "PATH: cannot open: No such file or directory; did you mean 'NEAR'?" and the
  // like; a directory or an empty file is a failure too.
  static Result<MappedFile> open(const std::string& path);

  MappedFile(MappedFile&&) noexcept;
  MappedFile& operator=(MappedFile&&) noexcept;
  ~MappedFile();

  // Replaces the mapping by a copy in memory of 2 MiB pages, made by so many threads:
  // fewer misses of the address cache when much of a large file is read all the time.
  // bytes() are elsewhere then. Fails when the system has no huge pages for programs,
  // or no memory; the mapping stays.
  Status copy_to_huge_pages(int threads);

  // From now on bytes() are this part of them, which must lie inside; `offset` is a multiple of
  // the 4096 bytes of a page.
  void narrow(size_t offset, size_t size);

  // From now on bytes() are `size` bytes: pieces of the file at other places, zeros between them.
  // What is behind a piece's last byte in the same page of the file comes along.
  struct Piece {
    uint64_t at = 0, offset = 0, size = 0;  // in the file; in bytes(). The first two: of pages
  };
  // Pieces rise in both, without a common page, and lie inside. Fails where addresses run out.
  Status spread(uint64_t size, std::span<const Piece> pieces);

  std::span<const std::byte> bytes() const;
  const std::string& path() const;
  // True once a read met a page that the file no longer has, or the disk could not read.
  bool shrunk() const;
  // "PATH: the file became smaller or its disk failed while it was in use; ...", when shrunk() is
  // true.
  Status check() const;

  // Hints; they never fail (a hint may be ignored).
  // For the whole file: read it 2 MiB at a time and map huge pages, where the file system
  // keeps files in them. What is in memory in small pages stays so.
  void advise_huge_pages() const;
  // For a byte range.
  void advise_will_need(size_t offset, size_t size) const;
  void advise_dont_need(size_t offset, size_t size) const;

 private:
  struct Mapping;
  explicit MappedFile(std::unique_ptr<Mapping> mapping);
  std::unique_ptr<Mapping> mapping_;
};

// The whole of a small text file; fails when it is larger than `limit_bytes`.
Result<std::string> read_text_file(const std::string& path, size_t limit_bytes = 64u << 20);

}  // namespace ktx

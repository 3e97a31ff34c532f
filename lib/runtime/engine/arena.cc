#include "lib/runtime/engine/arena.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <cerrno>
#include <cstring>

#include "lib/support/strings.h"

namespace ktx::runtime {

Result<Arena> Arena::allocate(uint64_t bytes, const char* what) {
  Arena arena;
  if (bytes == 0) return arena;
  void* data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED) {
    return Error{
        fmt::format("{}: cannot get {}: {}", what, human_bytes(bytes), std::strerror(errno))};
  }
  arena.data_ = static_cast<std::byte*>(data);
  arena.bytes_ = bytes;
  return arena;
}

Arena::~Arena() {
  if (data_) munmap(data_, bytes_);
}

}  // namespace ktx::runtime

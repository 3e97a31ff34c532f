#include "lib/support/memory_node.h"

#include <fmt/format.h>
#include <linux/mempolicy.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <vector>

namespace ktx {

Status move_to_node(std::span<const std::byte> bytes, int node) {
  if (bytes.empty() || node < 0) return {};
  const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const auto begin = reinterpret_cast<uintptr_t>(bytes.data()) / page * page;
  const auto end = reinterpret_cast<uintptr_t>(bytes.data()) + bytes.size();
  // Only pages that this process has in its tables are moved.
#ifdef MADV_POPULATE_READ
  (void)madvise(reinterpret_cast<void*>(begin), end - begin, MADV_POPULATE_READ);
#endif
  constexpr size_t kBits = 8 * sizeof(unsigned long);
  std::vector<unsigned long> nodes(static_cast<size_t>(node) / kBits + 1);
  nodes.back() = 1ul << (static_cast<size_t>(node) % kBits);
  // The kernel reads one bit less than the given number.
  if (syscall(SYS_mbind, begin, end - begin, MPOL_PREFERRED, nodes.data(), nodes.size() * kBits + 1,
              MPOL_MF_MOVE) == 0) {
    return {};
  }
  return Error{fmt::format("mbind: {}", std::strerror(errno))};
}

}  // namespace ktx

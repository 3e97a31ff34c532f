// A path from one GPU's memory to that of another process's GPU that bypasses host memory:
// NCCL (cuda/nccl_link.cc), or the one of the tests. One end sends, the other receives, in the
// same order; each message is received.
//
//   sender    id = gpu.new_link_id()        the other process gets it
//             link = gpu.link(id, true, ..) while the other one does the same with `false`
//             link->send(from, bytes)
//             while (!KTX_TRY(link->done())) ...   asked until it is; nothing here waits
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

#include "lib/support/result.h"

namespace ktx::runtime {

struct GpuLinkId {
  std::array<std::byte, 128> bytes = {};
};

class GpuLink {
 public:
  // Ends at once what is still on its way, whether the other end lives or not.
  virtual ~GpuLink() = default;
  // Queues a message beside all other work of the GPU, which must have made or left the memory.
  virtual Status send(const std::byte* from, uint64_t bytes) = 0;
  virtual Status receive(std::byte* to, uint64_t bytes) = 0;
  // Whether all that was queued is over. Fails when the link does.
  virtual Result<bool> done() = 0;
};

}  // namespace ktx::runtime

// What carries messages between the hosts of a run: MPI (mpi_network.cc), or the memory of one
// process for tests (thread_network.h). Ranks count from 0; rank r is host r of the plan.
//
// Nothing here blocks: what a host waits for, how long, and what silence means is decided above
// (host_group.h). All functions may be called by any thread. Messages of a sender to a receiver
// arrive in order, on each channel by itself; what they hold is not trusted by the receiver.
//
// Uses standard types only: the MPI part is a library of its own that a program opens when a plan
// has hosts (open_mpi.h).
#pragma once

#include <cstddef>
#include <vector>

#include "lib/support/result.h"

namespace ktx::runtime {

// Watch: signs of life, and what must reach a host while it computes.
enum class Channel { Work, Watch };

using MessageBytes = std::vector<std::byte>;

class Network {
 public:
  virtual ~Network() = default;
  virtual int rank() const = 0;
  virtual int ranks() const = 0;

  // Takes over a message, which leaves as soon as the receiver is ready; fails when the network
  // says that it cannot. At most kMostMessageBytes.
  virtual Status send(int to, Channel channel, MessageBytes message) = 0;
  // The next message that has arrived, from any rank; false when there is none.
  virtual Result<bool> receive(Channel channel, int& from, MessageBytes& message) = 0;
  // Goes on with what is on its way; whether anything still is.
  virtual Result<bool> progress() = 0;
  // Ends the run of this rank: in order where all end, else at once, without waiting for any.
  virtual void close(bool in_order) = 0;
};

inline constexpr size_t kMostMessageBytes = size_t{1} << 30;

}  // namespace ktx::runtime

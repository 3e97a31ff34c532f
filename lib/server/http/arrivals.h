// Connections whose request is still arriving, and the memory of their bodies. Decides which of
// them to close when connections or memory run short. Connections that are being answered are
// not listed here and are never closed.
//
//   Arrival arrival(arrivals, peer, [&] { socket.cancel(); });
//   arrivals.make_place();            the connections are full: one that waits goes
//   if (!arrival.hold(bytes)) ...     the bodies are too large together, and this one the largest
//
// A client that opens silent connections or sends large bodies slowly loses them to later
// clients; it cannot lock others out. Not thread-safe.
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <string>

namespace ktx::server {

class Arrival;

class Arrivals {
 public:
  explicit Arrivals(uint64_t most_bytes) : most_bytes_(most_bytes) {}
  // Drops what has waited longest of the peer that has most waiting. False: none waits.
  bool make_place();
  // Drops all that hold no body (the server ends).
  void drop_idle();
  // Bytes that an arrival held and left behind with Arrival::hand_over().
  void give_back(uint64_t bytes) { bytes_ -= bytes; }
  uint64_t bytes() const { return bytes_; }

 private:
  friend class Arrival;
  bool make_room(const Arrival& growing);

  const uint64_t most_bytes_;
  uint64_t bytes_ = 0;
  std::list<Arrival*> waiting_;  // the longest first
};

class Arrival {
 public:
  // `drop` ends what the connection waits for; it is called once at most.
  Arrival(Arrivals& all, std::string peer, std::function<void()> drop);
  ~Arrival();
  Arrival(const Arrival&) = delete;
  Arrival& operator=(const Arrival&) = delete;

  // A request is waited for from now on; a second call counts as new.
  void wait();
  // The request is there; its body's bytes stay counted until Arrivals::give_back().
  uint64_t hand_over();
  // Its body has so many bytes now. False: there is no room for them.
  bool hold(uint64_t bytes);
  bool dropped() const { return dropped_; }

 private:
  friend class Arrivals;
  void leave();
  void drop();

  Arrivals& all_;
  const std::string peer_;
  const std::function<void()> drop_;
  std::list<Arrival*>::iterator place_;
  bool waits_ = false;
  bool dropped_ = false;
  uint64_t bytes_ = 0;
};

}  // namespace ktx::server

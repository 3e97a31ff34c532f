// The links between GPUs of different hosts (gpu/gpu_link.h) that the boundaries of a plan are for
// (gpu/boundary_values.h), on one of the hosts.
//
// The control message lists every GPU transfer sent, so the receiver can drain them all, including
// those of cancelled forward passes (drain()). A sender goes on at once; only the next message of
// the same link waits until the one before was taken. Every wait ends where the run has failed.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "lib/runtime/engine/backend.h"
#include "lib/runtime/engine/bound_parts.h"
#include "lib/runtime/gpu/boundary_values.h"
#include "lib/runtime/gpu/gpu.h"
#include "lib/runtime/hosts/host_group.h"

namespace ktx::runtime {

class LinkedBoundaries {
 public:
  LinkedBoundaries(const BackendSetup& setup, const BoundParts& parts);
  ~LinkedBoundaries();

  bool wanted() const { return !boundaries_.empty(); }  // any host has some, and they are not off
  bool can_connect() const;  // this host has a GPU that can, for each of its own
  // Makes those of this host; all hosts do so at the same time.
  Status connect();
  void use(bool on);

  // Whether the values of a part come by a link in this pass; where a value is then.
  bool takes(size_t part, const Batch& batch) const {
    return on_ && link_of(part) != nullptr && is_linked(batch);
  }
  GpuPlace place(uint32_t value) const {
    return gpus_ != nullptr ? gpus_->boundary_place(value) : GpuPlace();
  }

  struct Piece {
    std::byte* data = nullptr;
    uint64_t bytes = 0;
  };
  // Puts the pieces together, once the message before has been taken; returns their bytes.
  Result<uint64_t> prepare(size_t part, const std::vector<Piece>& pieces);
  Status send(size_t part, uint64_t bytes);
  Status receive(size_t part, const std::vector<Piece>& pieces);
  // Takes what comes of passes up to this one, and forgets it.
  void drain(int64_t pass);

 private:
  struct Link {
    int from = 0, to = 0;
    Gpu* gpu = nullptr;  // null: between other hosts
    GpuMemory buffer;    // freed behind the link
    std::unique_ptr<GpuLink> link;
  };
  Link* link_of(size_t part) const {
    const auto found = by_part_.find(part);
    return found == by_part_.end() ? nullptr : found->second;
  }
  uint64_t most_bytes(const Part& part) const;
  Status make(Link& link);
  Error end_run(const Error& error);
  // Until it is done; `drains`: what others send is taken meanwhile.
  Status await(Link& link, bool drains);
  Status receive(Link& link, uint64_t bytes);
  void forget(const MessageBytes& message);

  const plan::PlanView& plan_;
  HostGroup& group_;
  const BoundParts& parts_;
  const plan::RunShape shape_;
  Backend* const gpus_;
  std::vector<GpuBoundary> boundaries_;
  std::vector<std::unique_ptr<Link>> links_;
  std::map<size_t, Link*> by_part_;  // of this host
  bool on_ = false;
};

}  // namespace ktx::runtime

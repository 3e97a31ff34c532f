// How a host that follows opens the plan: as the first host has, so that blocks, slots and chunks
// have the same numbers and sizes on all of them.
#pragma once

#include <cstdint>
#include <string>

#include "lib/plan/memory.h"
#include "lib/runtime/hosts/host_message.h"
#include "lib/support/hash.h"
#include "lib/support/result.h"

namespace ktx::runtime {

struct HostStart {
  std::string version;  // of ktx
  Hash128 plan_hash;    // PlanView::identity
  plan::RunShape shape;
  plan::KvBlocks kv_blocks;
  int32_t precision = 0;       // enum kernels::Precision
  bool count_experts = false;  // by expert

  MessageBytes message() const;
  static Result<HostStart> read(const MessageBytes& message);
};

// The answer: why the plan cannot be opened, or "", and notes for the user.
struct HostReady {
  std::string error;
  std::string note;
  bool links = false;  // its GPUs can have those that the plan's boundaries are for

  MessageBytes message() const;
  static Result<HostReady> read(const MessageBytes& message);
};

// The end of a pass on a host that follows.
struct HostForwardOver {
  std::string error;         // "": it was computed, or stopped
  int64_t weight_bytes = 0;  // read so far, in all passes
  int64_t expert_pairs = 0;  // activations of routed experts on the CPU, likewise

  MessageBytes message(int64_t pass) const;
  static Result<HostForwardOver> read(const MessageBytes& message);
};

}  // namespace ktx::runtime

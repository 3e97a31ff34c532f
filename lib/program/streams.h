// Streamed experts: a part of the CPU that holds the routed experts of a layer, which a GPU may
// compute instead, over weights that it fetches from main memory for the pass.
//
//   part 3  cpu   group_experts, quantize, experts_gate_up, quantize, experts_down
//   its inputs are transfers from cuda:0, its result is transferred to cuda:0
//
// Deferred experts are a part of their own, over the same weights (stream_memory.h).
//
// The values of the part then have places on that GPU, one for each buffer of the CPU that they
// are in: what is true of the CPU's buffers is true there. The transfers become copies within the
// GPU, and steps that make product inputs for the CPU (quantize) are left out.
//
// In a plan a part is streamed where its steps have launches: from the least of their tokens on.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lib/program/program.h"
#include "lib/support/result.h"

namespace ktx::program {

struct Stream {
  int32_t part = 0;
  std::string device;           // "cuda:0"
  std::vector<int32_t> steps;   // that the GPU computes, rising
  std::vector<int32_t> values;  // of the CPU, that have a place on the GPU; rising
  // Blobs, in the order of their use: of products, which come in panels, and others.
  std::vector<int32_t> products, vectors;
  bool operator==(const Stream&) const = default;
};

// The parts that can be streamed, rising. The parts have passed verify_parts.
std::vector<Stream> find_streams(const Program& program);

// The tokens from which on a plan streams; 0: it does not. An error where not all launches of
// streamed steps begin there.
Result<int64_t> stream_tokens(const Program& program);

// Those of find_streams() that have launches.
std::vector<Stream> streams_of(const Program& program);

}  // namespace ktx::program

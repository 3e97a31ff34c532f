// What a placement whose CPU has less memory than its weights take leaves of the routed experts on
// disk, and what a token then reads from there (lib/runtime/experts/expert_cache.h).
//
//   memory 32 GiB, all else 6 GiB  ->  26 GiB of experts: 8,900 of 14,848, 78 % of the chosen ones;
//                                      0.5 GiB a token from disk
//
// The most used experts of an expert profile are in memory, or any where all are used alike.
// Guesses of the next layer's experts and the cache's knowledge of what was used last are left out:
// with both, tokens read 0.94 to 1.01 of what this says (bench/2026-11-larger-than-memory.md).
#pragma once

#include <cstdint>

#include "lib/plan/expert_profile.h"
#include "lib/program/program.h"

namespace ktx::passes {

struct ExpertsOnDisk {
  int64_t experts = 0;  // of the CPU; 0: none is on disk
  int64_t slots = 0;    // 0: the memory has not even room for a layer's
  uint64_t slot_bytes = 0, least_bytes = 0;
  double hit_rate = 0;     // of the chosen ones
  double token_bytes = 0;  // from disk
  // For a prompt, whose tokens choose all experts: those of the layer at hand and of the next one
  // displace others.
  double chunk_bytes = 0;
};

// `room`: bytes of memory beside all else.
ExpertsOnDisk experts_on_disk(const program::Program& program, const plan::ExpertProfile* profile,
                              uint64_t room);

}  // namespace ktx::passes

// A long text over several hosts: a chunk begins before the one before it has gone through all of
// them (Engine::begin), so that no host is idle.
//
//   host a   chunk 1 | chunk 2 | chunk 3
//   host b           | chunk 1 | chunk 2 | chunk 3
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>

#include "lib/runtime/engine/engine.h"

namespace ktx::runtime {

// Whether a text of so many tokens is worth it, and can be computed so.
bool has_chunks_in_flight(const Engine& engine, int64_t tokens);

// Appends text.tokens to the sequence in chunks; of the last one the wanted logits are the engine's
// afterwards. `done` (may be empty) is called after each chunk with the tokens so far, and stops
// by false: what has begun is still computed. Whatever the outcome, nothing is in flight then and
// the sequence has whole chunks. `stop` (may be null) ends passes in flight as ForwardWatch does.
Result<Forward> forward_in_chunks(Engine& engine, const BatchItem& text,
                                  const std::atomic<bool>* stop,
                                  const std::function<bool(int64_t)>& done = {});

}  // namespace ktx::runtime

// A text that may be longer than a pass, computed chunk by chunk.
//
// Over several hosts a chunk begins before the one before it has gone through all of them
// (Engine::begin), so that no host is idle.
//
//   host a   chunk 1 | chunk 2 | chunk 3
//   host b           | chunk 1 | chunk 2 | chunk 3
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>

#include "lib/runtime/engine/engine.h"

namespace ktx::runtime {

// Whether this is possible, and worth it, for a text of so many tokens.
bool has_chunks_in_flight(const Engine& engine, int64_t tokens);

struct ChunkWatch {
  const std::atomic<bool>* stop = nullptr;  // ends passes in flight, as ForwardWatch does
  // Tokens so far, with the share of a chunk that is computed alone; as ForwardWatch::progress.
  std::function<void(double tokens)> progress = {};
  // After each chunk, tokens so far; false stops, but what has begun is still computed.
  std::function<bool(int64_t tokens)> done = {};
  bool one_by_one = false;  // each chunk begins after done() of the one before
};

// Appends text.tokens to the sequence in chunks, which end within no image; of the last one the
// wanted logits are the engine's afterwards. Whatever the outcome, nothing is in flight then and
// the sequence has whole chunks.
Result<Forward> forward_in_chunks(Engine& engine, const BatchItem& text, const ChunkWatch& watch);

}  // namespace ktx::runtime

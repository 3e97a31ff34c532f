// Weights as they are in memory, against the hashes of the plan: finds bits that have flipped since
// they were read from the file, or behind a copy to a GPU.
#include <algorithm>
#include <atomic>
#include <mutex>

#include "lib/plan/chunk_hash.h"
#include "lib/runtime/engine/engine_state.h"

namespace ktx::runtime {
Status PlanRunner::check_weights(ThreadPool& pool, const std::atomic<bool>* stop,
                                 const std::function<void(uint32_t blob)>& differs) {
  for (Backend* backend : backends_) {
    struct Piece {
      uint32_t blob;
      uint64_t offset;
    };
    std::vector<uint32_t> blobs;
    std::vector<Piece> pieces;
    for (uint32_t i = 0; i < plan_.blobs.size(); ++i) {
      if (!backend->has_weight(i)) continue;
      blobs.push_back(i);
      for (uint64_t at = 0; at < plan_.blobs[i].size; at += plan::kBlobPieceBytes) {
        pieces.push_back({i, at});
      }
    }
    plan::BlobHashes hashes(plan_.blobs);
    std::vector<std::vector<std::byte>> buffers(static_cast<size_t>(pool.threads()));
    std::mutex mutex;
    Status failed;
    const auto check = [&](const Piece& piece, int thread) {
      const uint64_t size =
          std::min(plan::kBlobPieceBytes, plan_.blobs[piece.blob].size - piece.offset);
      auto& buffer = buffers[static_cast<size_t>(thread)];
      buffer.resize(plan::kBlobPieceBytes);
      const auto bytes = std::span(buffer).first(size);
      Status read = backend->read_weight(piece.blob, piece.offset, bytes);
      if (read)
        return hashes.set(piece.blob, piece.offset / plan::kBlobPieceBytes, hash_bytes(bytes));
      const std::lock_guard lock(mutex);
      failed = std::move(read);
    };
    // A GPU is one thread's at a time.
    const bool shared = backend == cpu_.get();
    const auto stopped = [&] { return stop != nullptr && *stop; };
    const auto work = [&](int64_t i, int thread) {
      if (!stopped()) check(pieces[static_cast<size_t>(i)], thread);
    };
    if (shared) {
      pool.for_each(std::ssize(pieces), work);
    } else {
      for (int64_t i = 0; i < std::ssize(pieces) && failed; ++i) work(i, 0);
    }
    KTX_TRY(std::move(failed));
    if (stopped()) return {};
    for (const uint32_t blob : blobs) {
      if (!(hashes.of(blob) == plan_.blobs[blob].hash)) differs(blob);
    }
  }
  return {};
}

Result<std::vector<uint32_t>> Engine::check_weights(const std::atomic<bool>* stop) {
  std::vector<uint32_t> differing;
  KTX_TRY(state_->runner->check_weights(*state_->pool, stop,
                                        [&](uint32_t blob) { differing.push_back(blob); }));
  KTX_TRY(state_->plan.check());
  return differing;
}

}  // namespace ktx::runtime

// Experts that come when they are needed: a plan whose routed experts are more than main memory
// holds runs with some of them in slots, and reads the others from the plan's file.
//
//   layer 3 chose experts 4 17 99   ->   17 is in a slot and is computed; 4 and 99 are read at
//   once,
//                                        and each is computed when it has come
//
// Levels. An expert is in a slot of main memory or on disk, where all of them stay. Those that are
// used most may be in slots of a GPU as well, which are filled from here (expert_guests.h); as long
// as they are there, no pass needs them here, and they are the first to go. A GPU that streams
// whole layers in prompts (gpu/expert_streams.h) reads the mapping, as do plans for several hosts,
// drafters within a plan and copies in huge pages, which have no cache.
//
// Decode. GateUpStep says which experts a pass chose (need()). The reads of all that are missing
// begin in that moment, gate and up of every expert before any down, past the page cache and many
// at once (direct_reader.h). Experts that are there are computed first, beside the reads; the
// others in the order in which they were requested. A pass needs no more slots than a layer has
// experts, and the cache has at least so many.
//
// Eviction. Slots belong to no layer: the expert with the least decayed count goes
// (expert_slots.h), but for those of the layer at hand, of the next one as far as they were read
// ahead, and those that are being read.
//
// Ahead of need. A pass of few tokens guesses the next layer's experts (expert_prediction.h). A
// pass of many uses nearly all experts: while a layer is computed the next one is read, as far as
// there are slots. What was read ahead and is not used is the first to go.
//
// Equal answers. A slot has the file's bytes, and kernels get their address: no sum depends on
// where an expert was, or on the order in which experts came (kernels/matmul/experts.h).
//
// Faults. A read that fails, or has not come within ExpertCacheOptions::patience, fails the pass
// with an error that names the place and the reason, and the engine the file; the slot is given
// back when all its reads are over, and the next pass tries again. Before the error is given, reads
// that have not begun are dropped, and those on their way get ExpertCacheOptions::fault_patience.
//
// End. The system may write to a slot as long as a read of it is on its way. Where reads have not
// come within ExpertCacheOptions::end_patience, the cache and its slots stay until the process
// ends, and whatever ends it goes on: a disk that hangs holds up neither a server's stop nor the
// unloading of one model of several.
//
// One thread at a time calls need(), ahead() and take_failure(); any thread the others.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lib/plan/expert_memory.h"
#include "lib/plan/expert_profile.h"
#include "lib/plan/plan_reader.h"
#include "lib/runtime/engine/arena.h"
#include "lib/runtime/experts/direct_reader.h"
#include "lib/runtime/experts/expert_cache_use.h"
#include "lib/runtime/experts/expert_slots.h"
#include "lib/support/result.h"

namespace ktx::runtime {

class ExpertCache;
struct Batch;

struct ExpertCacheOptions {
  int64_t slots = 0;
  std::chrono::milliseconds patience{60'000};
  std::chrono::milliseconds fault_patience{5'000};
  std::chrono::milliseconds end_patience{10'000};
  ReaderOptions reader = {};
};

// One layer's experts, for the steps that compute them.
class CachedExperts {
 public:
  enum Part { kGateUp, kDown };

  // Experts e with offsets[e] < offsets[e + 1] are needed until the next call for any layer.
  void need(std::span<const int32_t> offsets, int64_t tokens);
  bool present(int32_t expert) const;  // gate and up
  // Waits. False: it could not be read, and the pass fails.
  bool wait(int32_t expert, Part part);
  bool failed() const;
  int32_t experts() const { return experts_; }

  // Behind need(), in passes of few tokens: reads ahead what the next layer is expected to choose
  // (expert_prediction.h).
  bool guesses(const Batch& batch) const;
  void guess(const Batch& batch) { guess_(batch); }
  void guess_by(std::function<void(const Batch&)> guess) { guess_ = std::move(guess); }
  // The router's experts by place (expert_places.h), where some of them are a GPU's guests for now:
  // prompts do not read these ahead. What it points to changes between passes only.
  void leave_out_guests(std::span<const float> places) { by_router_ = places; }

  // [experts] Where each one's matrices are, if they are in a slot.
  const std::byte* const* gate() const { return places_[0].data(); }
  const std::byte* const* up() const { return places_[gate_up_ - 1].data(); }
  const std::byte* const* down() const { return places_[gate_up_].data(); }

 private:
  friend class ExpertCache;
  struct Slice {
    program::BlobId blob = program::kAbsent;
    uint64_t offset = 0;  // of expert 0 in the file
    uint64_t bytes = 0;   // of one expert
    uint64_t place = 0;   // in a slot
  };

  ExpertCache* cache_ = nullptr;
  size_t number_ = 0;  // among the layers
  int32_t first_ = 0;  // its expert 0 among those of all layers
  int32_t experts_ = 0;
  int32_t layer_ = 0;                                  // of the model
  size_t gate_up_ = 0;                                 // slices of these
  std::vector<Slice> slices_;                          // gate, up, down
  std::function<void(const Batch&)> guess_;            // empty: it does not
  std::span<const float> by_router_;                   // empty: none are guests
  std::vector<std::vector<const std::byte*>> places_;  // by slice and expert
};

// Deletes the cache, or leaves it where reads do not come.
struct EndExpertCache {
  void operator()(ExpertCache* cache) const;
};
using OwnedExpertCache = std::unique_ptr<ExpertCache, EndExpertCache>;

class ExpertCache {
 public:
  // `plan` must outlive the cache; `path` is its file.
  static Result<OwnedExpertCache> open(const plan::PlanView& plan, const std::string& path,
                                       const ExpertCacheOptions& options);
  ~ExpertCache();

  // The layer that has experts' gates, ups or downs in `blob`; null: none of the cache's.
  CachedExperts* of(program::BlobId blob) const;
  std::span<const std::unique_ptr<CachedExperts>> layers() const { return layers_; }
  // Replaces in `out`, the bytes of a weight from `offset` on, those of experts that are in slots:
  // with what kernels read there.
  void copy_slots(program::BlobId blob, uint64_t offset, std::span<std::byte> out) const;
  // The bytes of one expert in `blob`, where it is in a slot; false: it is not.
  bool copy_expert(program::BlobId blob, int32_t expert, std::span<std::byte> out) const;
  // Begins to read what the next layer is expected to need: at most as many as there are slots
  // that may be refilled. Guessed experts are counted (ExpertCacheUse).
  void ahead(CachedExperts& layer, std::span<const int32_t> experts, bool guessed);

  // For warm starts (expert_note.h), from any thread. The counts of a profile, which has those of
  // this plan's layers, are as if the experts had been used so often; others are passed over.
  void prefer(const plan::ExpertProfile& profile);
  plan::ExpertProfile profile() const;
  // Reads the `n` most used experts that are in no slot into empty slots and waits for them, or
  // until `stop` is true. How many could be read; 0: there is no more to do.
  int64_t preload(int64_t n, const std::function<bool()>& stop);

  // Before the end, from any thread: drops the reads that have not begun and waits for the others;
  // end_patience at most, once for all calls. False: some have not come.
  bool await_reads();
  // A pass, or its failure, has waited in vain, and no read has come since.
  bool hangs() const { return hangs_.load(std::memory_order_acquire); }

  bool failed() const { return failed_.load(std::memory_order_acquire); }
  // Why the pass failed, once; the next one may succeed.
  Error take_failure();

  ExpertCacheUse use() const;
  std::string_view reader() const { return reader_->name(); }
  int64_t slots() const { return slots_.slots(); }
  uint64_t slot_bytes() const { return slot_bytes_; }

 private:
  friend class CachedExperts;
  enum Pin : uint8_t { kNeeded = 1, kAhead = 2 };
  struct Expert {
    std::atomic<int32_t> left[2] = {0, 0};  // slices that are still to be read, by Part
    std::atomic<bool> broken = false;       // one of them could not be
    uint8_t pins = 0;
    bool guessed = false;
  };

  ExpertCache(const plan::PlanView& plan, const plan::ExpertMemory& memory,
              const ExpertCacheOptions& options);
  void add_layers(const plan::PlanView& plan);
  void need(CachedExperts& layer, std::span<const int32_t> offsets, int64_t tokens);
  bool wait(const CachedExperts& layer, int32_t expert, CachedExperts::Part part);
  void end_read(uint32_t ticket, int error);
  bool is_read(int32_t number) const;
  void begin_reads(std::vector<DirectRead>& reads);
  // These hold the lock.
  bool any_broken(const CachedExperts& layer, std::span<const int32_t> offsets) const;
  void choose(const CachedExperts& layer, std::span<const int32_t> offsets, int64_t tokens);
  size_t fill(CachedExperts& layer, std::span<const int32_t> experts,
              std::vector<DirectRead>& reads);
  void add_reads(CachedExperts& layer, int32_t expert, CachedExperts::Part part,
                 std::vector<DirectRead>& reads);
  void fail(const CachedExperts& layer, const std::string& why);
  void fail_late(const CachedExperts& layer, const std::string& why);

  const std::chrono::milliseconds patience_, fault_patience_, end_patience_;
  const std::string architecture_;  // of the plan
  uint64_t slot_bytes_ = 0;
  Arena memory_;
  std::vector<std::unique_ptr<CachedExperts>> layers_;
  std::vector<Expert> experts_;           // of all layers
  std::vector<CachedExperts*> layer_of_;  // by those

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  ExpertSlots slots_;
  std::vector<int32_t> needed_, ahead_;  // with that pin
  std::vector<int32_t> missing_, next_;  // of the layer at hand and of the next one, without a slot
  std::vector<DirectRead> reads_;        // about to begin
  std::string last_error_;               // of a read
  ExpertCacheUse use_;
  std::optional<Error> failure_;
  std::atomic<bool> failed_ = false, hangs_ = false;
  bool awaited_ = false;
  std::unique_ptr<DirectReader> reader_;  // the last member: its threads use the others
};

}  // namespace ktx::runtime

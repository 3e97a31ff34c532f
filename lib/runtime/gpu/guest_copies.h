// Brings experts of the CPU into the slots of one GPU (experts/expert_guests.h), beside the passes:
//
//   between passes   main memory -> pinned memory     by all threads, which have nothing else to do
//   uploads          pinned memory -> panels on the GPU             beside any number of passes
//   between passes   that have come: panels -> tiles of the slot, in the queue; the layer's tables
//
// A copy that has not come by then is looked at again before the next pass; until it has, the CPU
// computes the expert, and the slot's guest stays. Tiles are bit for bit those of a plan that has
// the expert on the GPU (kernels/matmul/retile.h).
//
// A copy that fails leaves every expert where it is, and ends the moves of this run: the passes go
// on, and ExpertGuestUse counts it. Where tiles cannot be made of what has come, the slot stays
// empty.
//
// Memory: `at_once` places for an expert's panels, kMostGuestBytes of them at most, from what the
// check of a GPU's memory keeps free.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "lib/plan/plan_reader.h"
#include "lib/runtime/experts/expert_cache.h"
#include "lib/runtime/experts/expert_guests.h"
#include "lib/runtime/gpu/expert_streams.h"
#include "lib/runtime/gpu/gpu.h"
#include "lib/runtime/gpu/host_buffer.h"
#include "lib/support/result.h"
#include "lib/support/thread_pool.h"

namespace ktx::runtime {

// A GPU that streams experts of the CPU in long prompts (its copy of a layer's table changes, too).
struct StreamingGpu {
  Gpu* gpu;
  const ExpertStreams* streams;
};

struct GuestSetup {
  const plan::PlanView& plan;
  ExpertGuests& guests;
  const std::string& device;
  std::span<std::byte* const> blobs;  // of the GPU
  std::vector<StreamingGpu> streaming;
  ExpertCache* cache;  // of the CPU's experts; null: all are in the mapping
  ThreadPool& pool;
};

class GuestCopies {
 public:
  // Null where no layer has its slots on the device. What `setup` names must outlive it.
  static Result<std::unique_ptr<GuestCopies>> create(const GuestSetup& setup, Gpu& gpu);

  // Between two passes, when all that was queued is over. Fails where the GPU does.
  Status begin_forward();
  // Whether a weight of the GPU may be other than the plan's.
  bool changes(uint32_t blob) const { return changes_[blob]; }

 private:
  struct Place {
    GuestMove move;
    bool busy = false;
    std::byte* host = nullptr;
    std::byte* panels = nullptr;
    GpuMark copied = 0, taken = 0;
  };
  GuestCopies(const GuestSetup& setup, Gpu& gpu) : setup_(setup), gpu_(gpu) {}
  Status allocate();
  bool read(Place& place);
  Status send(Place& place);
  Status settle(Place& place);
  Status make_tiles(const Place& place);
  Status send_tables(size_t layer);
  void stop();

  const GuestSetup setup_;
  Gpu& gpu_;
  std::vector<bool> changes_;  // by blob
  std::vector<Place> places_;
  HostBuffer host_, tables_;
  GpuMemory panels_;
  bool stopped_ = false;
};

}  // namespace ktx::runtime

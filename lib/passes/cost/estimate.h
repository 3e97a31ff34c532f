// Estimates the memory of a placement on each device and its speed: one piece of code for the
// placement, for check-memory and for --estimate (estimate_text.h).
//
//   const auto formulas = KTX_TRY(MemoryFormulas::make(model));             // once
//   Estimate now = KTX_TRY(memory_of(model, formulas, placement));          // for each placement
//
// Needs no weights. Counts the same as lib/plan/memory.h does for a plan (weights, keys and
// values, the arena), and the memory that a device reserves for itself.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "lib/passes/cost/experts_on_disk.h"
#include "lib/passes/cost/forward_time.h"
#include "lib/passes/cost/memory_formulas.h"
#include "lib/passes/cost/priced_model.h"
#include "lib/plan/memory.h"
#include "lib/plan/stream_slots.h"

namespace ktx::passes {

inline constexpr double kDiskGbps = 3;  // of a usual NVMe drive

struct DeviceUse {
  std::string name;  // "cpu", "cuda:0"
  uint64_t weight_bytes = 0;
  uint64_t kv_bytes = 0;
  uint64_t state_bytes = 0;  // of a fixed size for each sequence
  uint64_t scratch_bytes = 0;
  uint64_t reserve_bytes = 0;  // program, driver, graphs
  uint64_t capacity = 0;       // 0: not known
  int numa_nodes = 1;          // that share `capacity`, in equal parts
  plan::KvTokenBytes kv_token;
  uint64_t stream_bytes = 0;  // of a GPU: slots and values of streamed experts, at most
  plan::StreamSlots stream_slots = plan::StreamSlots::Layer;  // chosen, or the largest that fit
  uint64_t table_bytes = 0;         // of tables of n-grams, mapped and read row by row; in no sum
  uint64_t expert_bytes = 0;        // of weight_bytes; the runtime may read them from disk
  uint64_t least_expert_bytes = 0;  // of memory for them: the slots of a layer (expert_memory.h)

  uint64_t total() const {
    return weight_bytes + kv_bytes + state_bytes + scratch_bytes + stream_bytes + reserve_bytes;
  }
  // With all other experts on disk.
  uint64_t least_total() const {
    return total() - expert_bytes + std::min(expert_bytes, least_expert_bytes);
  }
  bool too_small() const { return capacity > 0 && total() > capacity; }
  bool needs_disk() const { return too_small() && least_total() <= capacity; }
};

struct Estimate {
  std::vector<DeviceUse> devices;  // cpu first, then GPUs by number; those in use
  plan::RunShape shape;
  int64_t kv_budget_bytes = 0;  // as requested; 0: none
  plan::KvWidths widths;
  plan::KvBlocks blocks;           // of all sequences
  int64_t budget_tokens = -1;      // that it holds, of all sequences; -1: as many as are wanted
  double gpu_expert_use = -1;      // placement.h
  std::string slots;               // for guests among experts, expert_groups.h; "": none
  std::string deferral;            // deferred_experts.h; "": none
  std::string division;            // of experts over hosts; "": none
  int crossings = 0;               // hand-overs of a token, see hand_overs.h
  int64_t transferred_values = 0;  // in these
  // Largest that fits all devices, with experts on disk only where it must be (needs_disk);
  // -1: no capacity is known.
  int64_t max_ctx = -1;
  bool max_ctx_on_disk = false;
  // Only from estimate_of(), and only where the target states the rates of all devices
  // (ForwardTime::known).
  ForwardTime token;                       // of decode, empty context
  double cache_seconds = 0;                // more than that with shape.ctx tokens before
  ForwardTime chunk;                       // a pass of a long prompt
  ForwardTime short_chunk;                 // of 512 tokens, or a chunk where that is less
  int64_t forwards_in_flight = 1;          // over hosts (forwards_over_hosts.h)
  int64_t chunks_in_flight = 1;            // of one prompt
  std::vector<StreamTrial> stream_trials;  // of the state
  std::vector<TeamTrial> team_trials;      // likewise
  ExpertsOnDisk disk;                      // where the CPU's memory is too small
  double disk_gbps = kDiskGbps;
};

// Bytes that a device reserves. A CUDA context with its libraries and graphs takes about 500 MiB,
// fragments more.
inline constexpr uint64_t kGpuReserve = uint64_t{768} << 20;
inline constexpr uint64_t kCpuReserve = uint64_t{512} << 20;

// Memory alone: fast enough for each placement that is tried.
Result<Estimate> memory_of(const PricedModel& model, const MemoryFormulas& formulas,
                           const Placement& placement);
// With the speed, for which the steps are made (launched_steps.h).
Result<Estimate> estimate_of(const PricedModel& model, const MemoryFormulas& formulas,
                             const Placement& placement);

// The same of a state whose modules have their devices, with what was tried.
Result<Estimate> memory_of(const CompileState& state);
Result<Estimate> estimate_of(const CompileState& state);

}  // namespace ktx::passes

// Estimates the memory of a placement on each device and its speed: one piece of code for the
// placement, for check-memory and for --estimate.
//
//   Estimator estimator = KTX_TRY(Estimator::make(state));   // formulas, once
//   Estimate now = KTX_TRY(estimator.run(state));            // memory, for the devices as they are
//
// Needs no weights. Counts the same as lib/plan/memory.h does for a plan (weights, keys and
// values, the arena), and the memory that a device reserves for itself.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "lib/passes/pass.h"
#include "lib/passes/pass_time.h"
#include "lib/plan/memory.h"
#include "lib/plan/plan_format.h"
#include "lib/plan/state_layout.h"
#include "lib/plan/stream_memory.h"

namespace ktx::passes {

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

  uint64_t total() const {
    return weight_bytes + kv_bytes + state_bytes + scratch_bytes + stream_bytes + reserve_bytes;
  }
  bool too_small() const { return capacity > 0 && total() > capacity; }
};

struct Estimate {
  std::vector<DeviceUse> devices;  // cpu first, then GPUs by number; those in use
  plan::RunShape shape;
  int64_t kv_budget_bytes = 0;     // as requested; 0: none
  int64_t window = 0;              // the widest of the model's windows; 0: none
  uint64_t window_blocks = 0;      // that layers with one keep, of all sequences
  uint64_t state_slots = 0;        // of states of a fixed size (cache/state_pool.h)
  int64_t budget_tokens = -1;      // that it holds, of all sequences; -1: as many as are wanted
  double gpu_expert_use = -1;      // expert_groups.h
  std::string deferral;            // deferred_experts.h; "": none
  std::string division;            // of experts over hosts; "": none
  int crossings = 0;               // hand-overs of a token, see hand_overs.h
  int64_t transferred_values = 0;  // in these
  int64_t max_ctx = -1;            // largest that fits all devices; -1: no capacity is known
  // Of predict() alone, and where the target states the rates of all devices (PassTime::known).
  PassTime token;                          // of decode, empty context
  double cache_seconds = 0;                // more than that with shape.ctx tokens before
  PassTime chunk;                          // a pass of a long prompt
  PassTime short_chunk;                    // of 512 tokens, or a chunk where that is less
  int64_t passes_in_flight = 1;            // over hosts (passes_over_hosts.h)
  int64_t chunks_in_flight = 1;            // of one prompt
  std::vector<StreamTrial> stream_trials;  // of the state
};

// Bytes that a device reserves. A CUDA context with its libraries and graphs takes about 500 MiB,
// fragments more.
inline constexpr uint64_t kGpuReserve = uint64_t{768} << 20;
inline constexpr uint64_t kCpuReserve = uint64_t{512} << 20;

inline constexpr double kDiskGbps = 3;  // of a usual NVMe drive; for the first start

class Estimator {
 public:
  static Result<Estimator> make(const CompileState& state);
  Result<Estimate> run(const CompileState& state) const;
  // The same with the speed, for which the steps are made once more (launched_steps.h).
  Result<Estimate> predict(const CompileState& state) const;
  // What a device with routed experts needs more than one with all else.
  Result<uint64_t> scratch_of_experts(const plan::RunShape& shape) const;

 private:
  static Result<uint64_t> scratch(const std::vector<plan::BufferRecord>& buffers,
                                  const plan::RunShape& shape);
  Result<Estimate> run(const CompileState& state, plan::StreamSlots slots) const;
  Result<plan::KvBlocks> count_blocks(const CompileState& state, Estimate& estimate) const;

  // Of a device that has all modules, all but routed experts, and these alone; the last two are
  // empty where the model has none.
  std::vector<plan::BufferRecord> all_, without_experts_, of_experts_;
  std::vector<plan::KvSlotRecord> kv_slots_;
  struct State {
    int32_t number = 0, layer = 0;
    int64_t floats = 0;
  };
  std::vector<State> states_;
};

// Bytes of a module's own weights in the form that its decision asks for.
uint64_t placed_bytes(const ir::Module& module);
// The same as they are in the GGUF.
uint64_t source_bytes(const ir::Module& module);

// The text of --estimate: a table of the devices' memory, in one unit, then lines of at most
// 100 columns about it.
std::string print_estimate(const Estimate& estimate);
std::string estimate_table(const Estimate& estimate);
std::string memory_notes(const Estimate& estimate);
std::string speed_notes(const Estimate& estimate);
// What the placement was chosen among: a table of ways to stream experts; "": there was no choice.
std::string trials_table(const std::vector<StreamTrial>& trials);

}  // namespace ktx::passes

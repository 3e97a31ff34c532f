// The memory formulas of a plan per device: what each one has to hold.
//
//   for (const DeviceMemory& device : KTX_TRY(memory_by_device(plan, shape)))
//     // "cuda:0"  weights 16.9 GiB  activations 0.2 GiB  keys and values 0.5 GiB
//
// A buffer belongs to the device of the steps that write it; the reader has checked
// that these agree. All plans here are those of a PlanFile.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "lib/plan/memory.h"
#include "lib/plan/plan_reader.h"
#include "lib/plan/stream_memory.h"
#include "lib/support/result.h"

namespace ktx::plan {

// "cpu" first, then the other devices of steps, segments and caches in order of name, those of
// other hosts too.
std::vector<std::string> plan_devices(const PlanView& plan);

// The GPUs among them, of this host; whether there are any, here and on any host.
std::vector<std::string> plan_gpus(const PlanView& plan);
bool uses_gpus(const PlanView& plan);
bool any_host_uses_gpus(const PlanView& plan);

// Which KV slots are on `device`, for KvCache::create.
std::vector<bool> slots_on(const PlanView& plan, std::string_view device);

// The arena of one device; buffers of other devices take no bytes.
Result<ArenaLayout> lay_out_device_arena(const PlanView& plan, const std::string& device,
                                         int64_t tokens, int64_t outputs);

// Where the weights of a device are in the file, with the padding between them; "": of all devices.
// Not tables of n-grams, of which a token reads some rows: they may be larger than the memory.
struct FileRange {
  uint64_t offset = 0, bytes = 0;
};
std::vector<FileRange> weight_ranges(const PlanView& plan, std::string_view device = "");
uint64_t weight_bytes(const PlanView& plan, std::string_view device = "");

// The memory of all devices.
Result<MemoryEstimate> estimate_memory(const PlanView& plan, const RunShape& shape);

struct DeviceMemory {
  std::string name;
  uint64_t weight_bytes = 0;
  uint64_t arena_bytes = 0;
  uint64_t stream_bytes = 0;  // slots and values of streamed experts (stream_memory.h)
  KvTokenBytes kv_token;
  uint64_t kv_bytes = 0;          // for max_batch sequences of ctx tokens
  uint64_t state_slot_bytes = 0;  // of its states, in a slot
  uint64_t state_bytes = 0;       // of all slots

  uint64_t total() const {
    return weight_bytes + arena_bytes + stream_bytes + kv_bytes + state_bytes;
  }
};

Result<std::vector<DeviceMemory>> memory_by_device(const PlanView& plan, const RunShape& shape,
                                                   StreamSlots slots = StreamSlots::Layer);

}  // namespace ktx::plan

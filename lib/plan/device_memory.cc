#include "lib/plan/device_memory.h"

#include <algorithm>
#include <set>

#include "lib/plan/state_layout.h"
#include "lib/plan/stream_memory.h"
#include "lib/target/host_device.h"

namespace ktx::plan {
namespace {

template <class T, class Pick>
std::vector<T> of_device(std::span<const T> all, Pick pick) {
  std::vector<T> own;
  for (size_t i = 0; i < all.size(); ++i) {
    if (pick(i)) own.push_back(all[i]);
  }
  return own;
}

// The formulas of all buffers, those of other devices empty.
std::vector<BufferRecord> buffers_of(const PlanView& plan, const std::string& device) {
  const std::vector<std::string> devices = buffer_devices(plan);
  std::vector<BufferRecord> buffers(plan.buffers.begin(), plan.buffers.end());
  for (size_t i = 0; i < buffers.size(); ++i) {
    if (devices[i] != device) buffers[i] = {0, 0, 0};
  }
  return buffers;
}

}  // namespace

std::vector<std::string> plan_devices(const PlanView& plan) {
  std::set<std::string> names;
  for (const StepRecord& step : plan.steps) names.insert(std::string(plan.string(step.device)));
  for (const SegmentRecord& segment : plan.segments) {
    if (segment.kind == static_cast<uint32_t>(SegmentKind::Weights)) {
      names.insert(std::string(plan.string(segment.device)));
    }
  }
  for (const KvSlotRecord& slot : plan.kv_slots) {
    names.insert(std::string(plan.string(slot.device)));
  }
  names.erase("cpu");
  std::vector<std::string> devices{"cpu"};
  devices.insert(devices.end(), names.begin(), names.end());
  return devices;
}

std::vector<std::string> plan_gpus(const PlanView& plan) {
  std::vector<std::string> gpus = plan_devices(plan);
  std::erase_if(gpus, [](const std::string& device) {
    return target::is_cpu(device) || !target::is_first_host(device);
  });
  return gpus;
}

bool uses_gpus(const PlanView& plan) {
  return !plan_gpus(plan).empty();
}

bool any_host_uses_gpus(const PlanView& plan) {
  return !std::ranges::all_of(plan_devices(plan), target::is_cpu);
}

std::vector<bool> slots_on(const PlanView& plan, std::string_view device) {
  std::vector<bool> here;
  for (const KvSlotRecord& slot : plan.kv_slots) here.push_back(plan.string(slot.device) == device);
  return here;
}

std::vector<std::string> buffer_devices(const PlanView& plan) {
  std::vector<std::string> devices(plan.buffers.size());
  for (const StepRecord& step : plan.steps) {
    for (const OperandRecord& operand : plan.outputs(step)) {
      if (operand.value == kNone) continue;
      std::string& device = devices[plan.values[operand.value].buffer];
      if (device.empty()) device = std::string(plan.string(step.device));
    }
  }
  std::replace(devices.begin(), devices.end(), std::string(), std::string("cpu"));
  return devices;
}

Result<ArenaLayout> lay_out_device_arena(const PlanView& plan, const std::string& device,
                                         int64_t tokens, int64_t outputs) {
  return lay_out_arena(buffers_of(plan, device), tokens, outputs);
}

Result<std::vector<DeviceMemory>> memory_by_device(const PlanView& plan, const RunShape& shape,
                                                   StreamSlots slots_of_streams) {
  std::vector<DeviceMemory> all;
  for (const std::string& name : plan_devices(plan)) {
    const auto segments = of_device(plan.segments, [&](size_t i) {
      return plan.segments[i].kind == static_cast<uint32_t>(SegmentKind::Weights) &&
             plan.string(plan.segments[i].device) == name;
    });
    const auto slots = of_device(
        plan.kv_slots, [&](size_t i) { return plan.string(plan.kv_slots[i].device) == name; });
    RunShape own = shape;
    own.state_bytes = state_layout(plan, name).bytes();
    const MemoryEstimate estimate = KTX_TRY(estimate_memory(segments, buffers_of(plan, name), slots,
                                                            widest_window(plan.kv_slots), own));
    const StreamMemory stream =
        KTX_TRY(stream_memory(plan, plan.streams, name, shape, slots_of_streams));
    all.push_back({name, estimate.weight_bytes, estimate.arena_bytes, stream.total(),
                   estimate.kv_token, estimate.kv_bytes, own.state_bytes, estimate.state_bytes});
  }
  return all;
}

}  // namespace ktx::plan

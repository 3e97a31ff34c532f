#include "lib/runtime/gpu/gpu_setup.h"

#include <algorithm>

#include "lib/plan/device_memory.h"
#include "lib/runtime/gpu/gpu_buckets.h"

namespace ktx::runtime {

bool uses_gpus(const plan::PlanView& plan) {
  return plan::plan_devices(plan).size() > 1;
}

plan::RunShape gpu_run_shape(plan::RunShape shape) {
  const int64_t largest = GpuBuckets(shape.max_batch, shape.ctx).largest_batch();
  shape.step_tokens = std::max(shape.step_tokens, largest);
  shape.step_outputs = std::max(shape.step_outputs, largest);
  return shape;
}

std::vector<bool> slots_on(const plan::PlanView& plan, std::string_view device) {
  std::vector<bool> here;
  for (const plan::KvSlotRecord& slot : plan.kv_slots) {
    here.push_back(plan.string(slot.device) == device);
  }
  return here;
}

}  // namespace ktx::runtime

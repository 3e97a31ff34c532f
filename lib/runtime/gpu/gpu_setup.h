// Run options of a plan with GPUs, and facts of the plan that are needed before a GPU is
// opened.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "kernels/kernel_id.h"
#include "lib/plan/memory.h"
#include "lib/plan/plan_reader.h"
#include "lib/runtime/gpu/gpu.h"
#include "lib/target/isa.h"

namespace ktx::runtime {

struct StepResult;  // engine.h

struct GpuSetup {
  plan::RunShape shape;
  int64_t kv_blocks = 0;
  Isa isa = Isa::Scalar;
  kernels::Precision precision = kernels::Precision::Fast;
  OpenGpu open;        // empty: open_gpu
  bool graphs = true;  // false: every step is launched by itself
  // Look at every result of every step: slow.
  bool check_finite = false;
  std::function<void(const StepResult&)> on_result;
};

// Whether any step of the plan is on a GPU.
bool uses_gpus(const plan::PlanView& plan);

// The shape with room for the padding of the largest bucket.
plan::RunShape gpu_run_shape(plan::RunShape shape);

// Which KV slots are on `device`, for KvCache::create.
std::vector<bool> slots_on(const plan::PlanView& plan, std::string_view device);

}  // namespace ktx::runtime

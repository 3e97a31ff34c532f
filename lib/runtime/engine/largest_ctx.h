// `--ctx max`: the largest context for which a run fits its machines, in whole blocks of the cache.
//
//   EarlyGpus gpus = KTX_TRY(EarlyGpus::open(plan, options.open_gpu));
//   options.ctx = KTX_TRY(largest_ctx(plan, options, {available, gpus.facts()})).ctx;
//
// Also the chunk size of MoE models on GPUs, which depends on the same free memory.
//
// At most what the model was made for. More memory never gives less. Room to stream experts gives
// way to the context, as it does for any context that is asked for (gpu_start.cc).
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "lib/plan/plan_reader.h"
#include "lib/runtime/engine/engine_options.h"
#include "lib/runtime/gpu/gpu.h"
#include "lib/support/result.h"

namespace ktx::runtime {

// The GPUs of a plan, opened before its sizes are chosen, as these depend on what is free there.
class EarlyGpus {
 public:
  static Result<EarlyGpus> open(const plan::PlanView& plan, const OpenGpu& open_gpu);
  std::map<std::string, GpuFacts> facts() const;  // by device
  // Gives each of them once; the result may outlive this.
  OpenGpu taker() const;

 private:
  struct Opened {
    std::string device;
    std::unique_ptr<Gpu> gpu;
    GpuFacts facts;
  };
  std::shared_ptr<std::map<int, Opened>> gpus_;  // by number
};

struct RunRoom {
  std::optional<uint64_t> host_bytes;  // available; absent: not known
  std::map<std::string, GpuFacts> gpus;
  std::map<std::string, uint64_t> others = {};  // available on other hosts, by device
};

// Less what the tower of the plan in this file takes of the GPUs.
Status leave_tower_room(const std::string& path, const EngineOptions& options, RunRoom& room);

struct LargestCtx {
  int64_t ctx = 0;
  std::string note;  // "--ctx max: 40960 tokens, all that the model was made for"
};
// If no context fits, this returns the plan's default, and opening the engine reports why.
Result<LargestCtx> largest_ctx(const plan::PlanView& plan, const EngineOptions& options,
                               const RunRoom& room);

// Whether the GPUs have the memory for these options, a budget of keys and values included.
bool fits_gpus(const plan::PlanView& plan, const EngineOptions& options,
               const std::map<std::string, GpuFacts>& gpus);

// Whether the run may choose a larger chunk than usual (fit.h): all experts are on GPUs of this
// machine, and none was asked for.
bool may_enlarge_chunk(const plan::PlanView& plan, const EngineOptions& options);
// That chunk, by which each expert has more tokens for its weights; none where it does not fit.
Result<std::optional<int64_t>> enlarged_chunk(const plan::PlanView& plan,
                                              const EngineOptions& options, const RunRoom& room);

}  // namespace ktx::runtime

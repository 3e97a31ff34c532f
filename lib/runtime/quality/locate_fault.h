// Which step is wrong on a machine that fails a plan's self-test.
//
//   flipped bits     Engine::check_weights names the weight, and by it the steps that read it
//   a kernel         each step of the CPU runs twice, by its kernel and by the scalar one, on the
//                    same inputs (cpu/repeated_steps.h): the first one that differs
//   anything else    the residual stream behind each layer, on any device, against the source's:
//                    the layer where both part
//
// A plan is opened for it with EngineOptions::on_repeat and on_result; slow.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lib/plan/self_test.h"
#include "lib/runtime/engine/engine.h"
#include "lib/support/result.h"

namespace ktx::runtime {

struct WorstStep {
  uint32_t step = 0;
  double difference = 0;
};

struct FaultSearch {
  int64_t steps = 0;                    // of the CPU that were compared
  double most_difference = 0;           // of a step of a right kernel
  WorstStep worst_step;                 // of those that are right
  std::optional<WorstStep> wrong_step;  // the first in a pass
  double worst_stream = 0;              // |own - source| / |source|, of any layer
  // Where that grows most from one layer to the next, beyond what rounding makes it; -1: the
  // embedding.
  std::optional<int32_t> parting_layer;
};

// Opens `path` with `options` and computes the prompts, until a pass has a wrong step. Streams part
// somewhere on a good machine, too, by rounding: the layer shows where a fault is, not whether.
Result<FaultSearch> locate_fault(const std::string& path, const EngineOptions& options,
                                 const plan::SelfTest& test,
                                 const std::atomic<bool>* stop = nullptr);

// The steps that read a weight.
std::vector<uint32_t> readers_of(const plan::PlanView& plan, uint32_t blob);

}  // namespace ktx::runtime

// Guesses which experts the next layer will choose, while this layer's are computed.
//
//   layer 3's experts read x; layer 4's router is  ids = router(x', gate_4)
//   guess for layer 4:                             ids = router(x,  gate_4)
//
// A layer adds little to the hidden state, so that the next router says much the same of it one
// layer early (Eliseev and Mazur, "Fast Inference of Mixture-of-Experts Language Models with
// Offloading", 2023). The steps are the plan's own (quantize, matmul, router), bound a second time
// with this layer's input, so that every family's router is followed: biases, groups, factors.
// Those of a GPU's router are bound on the CPU, which reads their weights from the mapping. Where
// experts are divided among devices, or have guests (expert_guests.h), those count that the CPU has
// now. Layers whose router these steps do not explain are not guessed.
//
// The first half of the ranks is read ahead: of Qwen3-30B-A3B's shape with random, skewed weights
// 76 % of these are right, 60 % of all ranks, and the wrong ones cost more reads than the others
// save.
//
// A wrong guess costs a read; the exact router decides which experts are computed. One thread does
// it, beside the others, in passes of at most kDecodeTokens.
#pragma once

#include <memory>
#include <vector>

#include "lib/plan/plan_reader.h"
#include "lib/runtime/cpu/bind.h"
#include "lib/runtime/engine/arena.h"
#include "lib/runtime/engine/batch.h"
#include "lib/runtime/engine/host_arena.h"
#include "lib/runtime/experts/expert_cache.h"

namespace ktx::runtime {

// The memory that guesses need behind the activations of HostArena.
uint64_t prediction_bytes(const program::Program& program);

class ExpertPrediction {
 public:
  // `options` are those of the plan's own steps; `arena` has prediction_bytes() behind its layout.
  // Makes the cache's layers guess; all must outlive the result, or never run again.
  static Result<std::unique_ptr<ExpertPrediction>> create(const plan::PlanView& plan,
                                                          const KvPools& kv, const HostArena& arena,
                                                          const BindOptions& options,
                                                          ExpertCache& cache);
  ~ExpertPrediction();

  int64_t layers() const { return static_cast<int64_t>(guesses_.size()); }  // that are guessed

 private:
  struct Guess;
  ExpertPrediction() = default;

  // The plan with values of its own for what the guesses compute.
  plan::PlanView plan_;
  program::Program program_;
  std::vector<uint64_t> offsets_;  // of its buffers
  Arena scratch_;
  std::vector<std::unique_ptr<Guess>> guesses_;
};

}  // namespace ktx::runtime

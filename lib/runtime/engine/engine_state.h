// The state of an Engine. open_engine.cc fills it, engine.cc runs batches with it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "lib/runtime/cpu/warm_up.h"
#include "lib/runtime/engine/engine.h"
#include "lib/runtime/engine/final_hidden.h"
#include "lib/runtime/engine/plan_runner.h"
#include "lib/runtime/experts/expert_cache.h"
#include "lib/runtime/experts/expert_guests.h"
#include "lib/runtime/experts/expert_note.h"
#include "lib/runtime/lora/lora_weights.h"
#include "lib/support/file_stamp.h"
#include "lib/support/thread_pool.h"

namespace ktx::runtime {

// A pass, from begin() to finish(), and its logits until the next one.
struct Engine::Pass {
  Batch batch;
  std::vector<BatchItem> items;  // once it has begun, their tokens are counted, not read
  const ForwardWatch* watch = nullptr;
  ForwardWalk walk;
  int64_t weight_bytes = 0;   // read for it so far
  bool follows_lost = false;  // a pass before it has failed that computed the text before it
};

// Hidden states of tokens of the last pass, once they were read.
struct KeptRows {
  int64_t begin = 0, count = 0;  // tokens of the pass
  std::vector<float> rows;       // kept_width() floats for each of `count`
  std::vector<float> values;     // the same, one value's of all tokens after the other's
};

// In order of construction: later members point into earlier ones.
struct Engine::State {
  explicit State(plan::PlanFile file) : plan(std::move(file)) {}

  plan::PlanFile plan;
  std::optional<FileStamp> opened;   // the plan's file; none: it is copied, and may change
  std::shared_ptr<HostGroup> hosts;  // of a plan for several
  Sizes sizes;
  Isa isa = Isa::Scalar;
  SequenceCache cache;
  std::shared_ptr<ThreadPool> pool;
  OwnedExpertCache experts;              // null: all are mapped
  std::unique_ptr<ExpertGuests> guests;  // null: experts stay where the plan has them
  std::unique_ptr<ExpertNote> expert_note;
  std::optional<LoraWeights> lora;  // none: there are no adapters
  std::vector<LoraInfo> adapters;
  std::unique_ptr<PlanRunner> runner;
  std::unique_ptr<WarmUp> warm_up;
  std::vector<Pass> passes;  // as many as may be in flight, in turn
  size_t oldest = 0;         // of those in flight
  size_t in_flight = 0;
  size_t shown = 0;  // the pass whose logits are asked for
  const Batch& batch() const { return passes[shown].batch; }
  Result<FinalHidden> hidden = Error{"not looked for"};
  std::vector<FinalHidden> kept_hidden;  // of every token
  KeptRows kept_rows;
  EngineStats stats;
};

}  // namespace ktx::runtime

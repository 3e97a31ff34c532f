// The drafter of --draft: a plan that drafts tokens for the model's plan, and stands within it.
//
//   --draft mtp           the model's own layers for multi-token prediction
//   --draft small.gguf    a small model, compiled with the same target, context and batch
//   --draft eagle3.gguf   a head that reads hidden states of the model (lib/arch/draft_head.h)
//   --draft small.ktxplan a plan as it is: placed by rules of its own
//
// It is placed first. On each GPU it gets what the model leaves, or where the model leaves nothing,
// its share of all weights; the model then gets the rest (leave_room).
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "lib/input/model_source.h"
#include "lib/passes/pass.h"
#include "lib/plan/plan_reader.h"
#include "lib/support/result.h"
#include "tools/ktx-compile/inner_plan.h"
#include "tools/ktx-compile/options.h"

namespace ktx::tools {

// --draft mtp.
bool drafts_by_prediction(const Options& options);

class DrafterPlan {
 public:
  // `model` and `state` are the model's, before its passes. What is compiled is in a file beside
  // the output as long as this lives.
  static Result<DrafterPlan> make(const Options& options, const input::ModelSource& model,
                                  const passes::CompileState& state);

  std::span<const std::byte> bytes() const;  // of the whole plan
  const plan::PlanView& plan() const;
  // The model's hidden states that it reads.
  std::vector<passes::Tap> taps() const;
  // Takes what it needs of the target's GPUs from them.
  Status leave_room(passes::CompileState& model) const;

 private:
  DrafterPlan(OwnFile own, plan::PlanFile plan) : own_(std::move(own)), plan_(std::move(plan)) {}

  OwnFile own_;  // null: the file is the user's
  plan::PlanFile plan_;
};

// What --estimate says of the drafter. Takes what it needs of the GPUs of the model's target from
// them. Needs no weights.
Result<std::string> estimate_drafter(const Options& options, const input::ModelSource& model,
                                     passes::CompileState& model_state);

}  // namespace ktx::tools

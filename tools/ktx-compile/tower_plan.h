// The tower of --mmproj: a plan that makes rows for the model's plan of images, and stands within
// it.
//
//   --mmproj mmproj.gguf    the projector's GGUF, which is published beside the model's
//
// It is compiled before the model, with rules of its own (--mmproj-rules), for the first GPU of the
// target, where all of it fits there, else for the CPU; rules may name other GPUs.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "lib/input/model_source.h"
#include "lib/passes/pass.h"
#include "lib/plan/plan_facts.h"
#include "lib/plan/plan_reader.h"
#include "lib/support/result.h"
#include "tools/ktx-compile/inner_plan.h"
#include "tools/ktx-compile/options.h"

namespace ktx::tools {

class TowerPlan {
 public:
  // `model` and `state` are the language model's, before its passes. What is compiled is in a file
  // beside the output as long as this lives.
  static Result<TowerPlan> make(const Options& options, const input::ModelSource& model,
                                const passes::CompileState& state);

  // Its part of the target's GPUs is no longer the model's.
  Status leave_room(passes::CompileState& model) const;

  std::span<const std::byte> bytes() const { return plan_->file; }  // of the whole plan
  const plan::PlanView& plan() const { return plan_.view(); }

 private:
  TowerPlan(OwnFile own, plan::PlanFile plan) : own_(std::move(own)), plan_(std::move(plan)) {}

  OwnFile own_;
  plan::PlanFile plan_;
};

// Fails where the target has several hosts: a model that takes images runs on one.
Status check_hosts_of_tower(const passes::CompileState& model);
// What the passes must know of such a model.
void take_images(const plan::ImageFacts& image, passes::CompileState& model);

struct TowerEstimate {
  std::string text;  // what --estimate says
  plan::ImageFacts image;
};
// Needs no weights. Leaves room on GPUs as above.
Result<TowerEstimate> estimate_tower(const Options& options, const input::ModelSource& model,
                                     passes::CompileState& model_state);

}  // namespace ktx::tools

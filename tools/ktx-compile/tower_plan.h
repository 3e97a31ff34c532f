// The tower of --mmproj: a plan that makes rows for the model's plan of images, and stands within
// it.
//
//   --mmproj mmproj.gguf    the projector's GGUF, which is published beside the model's
//
// It is compiled for the CPU of the target, with rules of its own (--mmproj-rules). So is the model
// that takes its rows: attention of GPUs is causal among an image's tokens.
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

  std::span<const std::byte> bytes() const { return plan_->file; }  // of the whole plan
  const plan::PlanView& plan() const { return plan_.view(); }

 private:
  TowerPlan(OwnFile own, plan::PlanFile plan) : own_(std::move(own)), plan_(std::move(plan)) {}

  OwnFile own_;
  plan::PlanFile plan_;
};

// A model that takes the rows of a tower has no GPUs in its target; fails where that has several
// hosts.
Status leave_to_cpu(passes::CompileState& model);
// What the passes must know of such a model.
void take_images(const plan::ImageFacts& image, passes::CompileState& model);

struct TowerEstimate {
  std::string text;  // what --estimate says
  plan::ImageFacts image;
};
// Needs no weights.
Result<TowerEstimate> estimate_tower(const Options& options, const input::ModelSource& model,
                                     const passes::CompileState& model_state);

}  // namespace ktx::tools

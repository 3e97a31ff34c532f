#include "lib/plan/needed_reader.h"

#include <algorithm>
#include <cstddef>
#include <functional>

#include "lib/ops/fused_ops.h"
#include "lib/ops/step_attrs.h"

namespace ktx::plan {
namespace {

bool any_step(const PlanContents& contents, StepOp op,
              const std::function<bool(const StepRecord&)>& is) {
  return std::ranges::any_of(contents.steps, [&](const StepRecord& step) {
    return step.op == static_cast<uint32_t>(op) && is(step);
  });
}

bool any_launch(const PlanContents& contents, FusedOp op,
                const std::function<bool(const LaunchRecord&)>& is) {
  return std::ranges::any_of(contents.launches, [&](const LaunchRecord& launch) {
    return launch.fused_op == static_cast<uint32_t>(op) && is(launch);
  });
}

constexpr auto kAnyStep = [](const StepRecord&) { return true; };
constexpr auto kAnyLaunch = [](const LaunchRecord&) { return true; };

// A step is stored without the last attributes that have their defaults.
bool any_attribute(const PlanContents& contents, StepOp op, size_t offset) {
  return any_step(contents, op, [&](const StepRecord& step) { return step.attrs_size > offset; });
}

bool experts_on_several_devices(const PlanContents& contents) {
  return any_step(contents, StepOp::GroupExperts, [&](const StepRecord& step) {
    return step.weight_count > 0 && contents.weight_uses[step.first_weight] != kNone;
  });
}

bool launches_of_some_experts(const PlanContents& contents) {
  return experts_on_several_devices(contents) && any_launch(contents, FusedOp::Experts, kAnyLaunch);
}

bool answers_without_logits(const PlanContents& contents) {
  return !contents.facts.gives_logits();
}

bool drafter(const PlanContents& contents) {
  return !contents.drafter.empty();
}

bool hosts(const PlanContents& contents) {
  return !contents.target.hosts.empty();
}

bool hidden_states_that_come(const PlanContents& contents) {
  return contents.facts.reads_hidden();
}

bool images(const PlanContents& contents) {
  return contents.facts.image.size > 0;
}

bool norms_with_weights_by_group(const PlanContents& contents) {
  return any_step(contents, StepOp::RmsNorm, [&](const StepRecord& step) {
    return contents.blobs[contents.weight_uses[step.first_weight]].rows > 1;
  });
}

// Launches of attention to several tokens, whose heads are wider than 128.
bool prompts_with_wide_heads(const PlanContents& contents) {
  return any_launch(contents, FusedOp::Attention, [&](const LaunchRecord& launch) {
    const uint32_t last = contents.launch_steps[launch.first_step + launch.step_count - 1];
    const StepRecord& step = contents.steps[last];
    const auto attrs = attrs_from_bytes<AttentionAttrs>(
        std::span<const std::byte>(contents.attrs).subspan(step.attrs_offset, step.attrs_size));
    return launch.most_tokens > 1 && attrs.key_dim > 128;
  });
}

struct Need {
  uint32_t minor;
  bool (*is_there)(const PlanContents& contents);
};

constexpr Need kNeeds[] = {
#define KTX_STEPS(minor, op) \
  {minor, [](const PlanContents& plan) { return any_step(plan, StepOp::op, kAnyStep); }},
#define KTX_ATTRIBUTE(minor, op, attribute)                                            \
  {minor, [](const PlanContents& plan) {                                               \
     return any_attribute(plan, StepOp::op, offsetof(AttrsOf<StepOp::op>, attribute)); \
   }},
#define KTX_LAUNCHES(minor, op) \
  {minor, [](const PlanContents& plan) { return any_launch(plan, FusedOp::op, kAnyLaunch); }},
#define KTX_FOUND(minor, function) {minor, function},
#include "lib/plan/needed_reader.def"
#undef KTX_FOUND
#undef KTX_LAUNCHES
#undef KTX_ATTRIBUTE
#undef KTX_STEPS
};

}  // namespace

uint32_t needed_reader(const PlanContents& contents) {
  uint32_t minor = 0;
  for (const Need& need : kNeeds) {
    if (need.minor > minor && need.is_there(contents)) minor = need.minor;
  }
  return minor;
}

}  // namespace ktx::plan

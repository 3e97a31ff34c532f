#include "lib/runtime/hosts/forwards_in_flight.h"

#include <algorithm>
#include <set>
#include <span>

#include "lib/plan/plan_hosts.h"
#include "lib/runtime/engine/final_hidden.h"
#include "lib/target/host_device.h"

namespace ktx::runtime {
namespace {

bool is_wait(const plan::PlanView& plan, const Part& part) {
  return part.kind == Part::Kind::Network && part.device == static_cast<int>(plan.host);
}

// What the first host leaves in its activations before a wait, and uses after it.
class Waits {
 public:
  Waits(const plan::PlanView& plan, const BoundParts& parts) : plan_(plan), parts_(parts) {}

  bool keep_nothing() {
    for (const Part& part : parts_.parts) {
      if (part.kind == Part::Kind::Elsewhere) continue;
      if (is_wait(plan_, part)) waited_ = true;
      for (const auto& step : plan_.steps.subspan(part.first_step, part.step_count)) {
        const bool sends = part.kind == Part::Kind::Network && !is_wait(plan_, part);
        const bool receives = part.kind == Part::Kind::Network && !sends;
        if (!receives && !sends && waited_ && step.layer >= 0) return false;
        if (!receives && !use(plan_.inputs(step))) return false;
        if (!sends && !use(plan_.outputs(step))) return false;
      }
    }
    // The logits, and the hidden states that embeddings are made of, are read after the pass.
    const Result<FinalHidden> hidden = find_final_hidden(plan_);
    if (hidden && !target::is_first_host(hidden->device)) return false;
    return !before_.contains(plan_.facts.logits_value) &&
           !(hidden && before_.contains(hidden->value));
  }

 private:
  bool use(std::span<const plan::OperandRecord> operands) {
    for (const plan::OperandRecord& operand : operands) {
      if (operand.value == plan::kNone) continue;
      if (!waited_) before_.insert(operand.value);
      if (waited_ && before_.contains(operand.value)) return false;
    }
    return true;
  }

  const plan::PlanView& plan_;
  const BoundParts& parts_;
  bool waited_ = false;
  std::set<uint32_t> before_;  // values that steps before the first wait use
};

}  // namespace

int64_t forwards_in_flight(const plan::PlanView& plan, const BoundParts& parts) {
  const bool divided = std::ranges::any_of(plan.steps, [](const plan::StepRecord& step) {
    return step.op == static_cast<uint32_t>(StepOp::SumExperts);
  });
  if (divided) return 1;
  const bool waits =
      std::ranges::any_of(parts.parts, [&](const Part& p) { return is_wait(plan, p); });
  if (!waits || !Waits(plan, parts).keep_nothing()) return 1;
  std::set<size_t> hosts;
  for (const plan::StepRecord& step : plan.steps) {
    hosts.insert(plan::host_of(plan, plan.string(step.device)));
  }
  return static_cast<int64_t>(hosts.size());
}

}  // namespace ktx::runtime

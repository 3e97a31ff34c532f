#include "tools/ktx-run/self_test_outcome.h"

#include <fmt/format.h>

#include "lib/program/program.h"
#include "lib/runtime/quality/locate_fault.h"
#include "lib/support/strings.h"

namespace ktx::tools {
namespace {

std::string weight_text(const plan::PlanView& plan, uint32_t blob) {
  std::vector<std::string> steps;
  for (const uint32_t step : runtime::readers_of(plan, blob)) {
    steps.push_back(step_text(plan, step));
  }
  const std::string readers =
      steps.empty() ? "no step reads it" : fmt::format("read by {}", join(steps, ", "));
  return fmt::format("'{}' is not in memory as the plan has it; {}",
                     printable(plan.program->blobs[blob].name), readers);
}

}  // namespace

std::string step_text(const plan::PlanView& plan, uint32_t step) {
  const program::Step& own = plan.program->steps[step];
  return fmt::format("step {} ({} of {} on {})", step, info(own.op).name, printable(own.module),
                     printable(own.device));
}

Result<SelfTestOutcome> run_self_test(runtime::Engine& engine, const std::atomic<bool>* stop) {
  SelfTestOutcome outcome;
  outcome.test = KTX_TRY(plan::read_self_test(engine.plan()));
  auto answers = runtime::replay(engine, outcome.test, stop);
  // Behind them: slots of experts that come from disk have what gave these answers.
  for (const uint32_t blob : KTX_TRY(engine.check_weights(stop))) {
    outcome.damaged.push_back(weight_text(engine.plan(), blob));
  }
  outcome.answers = KTX_TRY(std::move(answers));
  return outcome;
}

std::string answers_text(const runtime::SelfTestRun& run) {
  return fmt::format(
      "{} answers: {:.3g} from the source's in the median (at most {:g}), {:.3g} at worst "
      "(at most {:g}; prompt {}, token {}{})",
      run.answers, run.median, run.bound.median, run.worst, run.bound.worst, run.prompt, run.token,
      run.as_a_whole ? ", the prompt as a whole" : "");
}

std::string failure_text(const SelfTestOutcome& outcome) {
  if (!outcome.damaged.empty()) {
    const size_t others = outcome.damaged.size() - 1;
    return fmt::format("weight {}{}", outcome.damaged[0],
                       others > 0 ? fmt::format("; and {} other weights", others) : "");
  }
  return outcome.answers.passed() ? "" : answers_text(outcome.answers);
}

}  // namespace ktx::tools

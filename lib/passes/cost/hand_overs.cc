#include "lib/passes/cost/hand_overs.h"

#include <set>
#include <utility>

#include "lib/passes/cost/launched_steps.h"

namespace ktx::passes {

namespace {

using program::Step;

// The device and layer that wrote a value last.
struct Writer {
  std::string device;
  int32_t layer = -1;
};

HandOvers count(const program::Program& program) {
  HandOvers found;
  std::vector<Writer> writers(program.values.size());
  // Pairs of devices between which a transfer goes with the hand-over before it, as the
  // first has computed nothing since.
  std::set<std::pair<std::string, std::string>> waited;
  for (const Step& step : program.steps) {
    Writer writer{step.device, step.layer};
    if (step.op == StepOp::Transfer) {
      const Writer& source = writers[step.inputs[0].value];
      if (waited.emplace(source.device, step.device).second) {
        const bool within = step.layer >= 0 && source.layer == step.layer;
        found.all.push_back({source.device, step.device, step.layer, within});
      }
      ++found.values;
      writer.layer = source.layer;
    } else {
      std::erase_if(waited, [&](const auto& pair) { return pair.first == step.device; });
      if (!step.module.empty()) found.modules_on[step.device].insert(step.module);
    }
    for (const program::View& view : step.outputs) {
      if (view.value != program::kAbsent) writers[view.value] = writer;
    }
  }
  return found;
}

}  // namespace

Result<HandOvers> find_hand_overs(const PricedModel& model, const Placement& placement) {
  ir::ModuleGraph modules = model.modules;
  write_placement(placement, modules);
  return count(
      KTX_TRY(steps_after(model, std::move(modules), {"lower-to-steps", "insert-transfers"})));
}

}  // namespace ktx::passes

#include "lib/passes/cost/hand_overs.h"

#include <set>
#include <utility>

namespace ktx::passes {

// Of lower_to_steps.cc and insert_transfers.cc: a pass has no header.
Status lower_to_steps(CompileState& state);
Status insert_transfers(CompileState& state);

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
  DiagSink unheard;
  CompileState lowered;
  lowered.modules = model.modules;
  write_placement(placement, lowered.modules);
  lowered.target = model.target;
  lowered.diags = &unheard;
  lowered.fact = Fact::Placed;
  KTX_TRY(lower_to_steps(lowered));
  KTX_TRY(insert_transfers(lowered));
  return count(lowered.program);
}

}  // namespace ktx::passes

// Checks that every step finds what it needs on its own device.
#include <fmt/format.h>

#include "lib/steps/step_graph.h"

namespace ktx::steps {
void verify_devices(const StepGraph& graph, DiagSink& sink) {
  const std::vector<std::string> on = value_devices(graph);
  for (size_t i = 0; i < graph.steps.size(); ++i) {
    const Step& step = graph.steps[i];
    const auto fail = [&](const std::string& what, const std::string& device) {
      sink.error({}, "",
                 fmt::format("step {} ({} of '{}') runs on {}, but {} is on {}", i,
                             info(step.op).name, step.module, step.device, what, device));
    };
    const auto here = [&](const View& view) {
      if (view.value == kAbsent || on[view.value] == step.device) return;
      fail(fmt::format("value '{}'", graph.values[view.value].name), on[view.value]);
    };
    for (const View& view : step.outputs) here(view);
    if (step.op == StepOp::Transfer) {
      if (on[step.inputs[0].value] == step.device) {
        sink.error({}, "",
                   fmt::format("step {} transfers '{}' to where it is, {}", i,
                               graph.values[step.inputs[0].value].name, step.device));
      }
      continue;
    }
    if (step.op == StepOp::AllReduce) continue;
    for (const View& view : step.inputs) here(view);
    for (BlobId blob : step.weights) {
      if (blob == kAbsent || graph.blobs[blob].device == step.device) continue;
      fail(fmt::format("weight '{}'", graph.blobs[blob].name), graph.blobs[blob].device);
    }
    for (const int32_t slot : {kv_slot_of(step.attrs), entries_slot_of(step.attrs)}) {
      if (slot == kAbsent || graph.kv_slots[slot].device == step.device) continue;
      fail(fmt::format("KV slot {}", slot), graph.kv_slots[slot].device);
    }
  }
}

}  // namespace ktx::steps

#include "lib/steps/graph_stages.h"

#include <map>
#include <string>

namespace ktx::steps {
namespace {

StepAccess access(const View& view, bool write, bool by_row) {
  return {view.value, view.value, view.offset, view.offset + view.width, write, by_row};
}

// A KV slot counts as a value behind all others.
StepAccess slot_access(const StepGraph& graph, int32_t slot, bool write) {
  const auto number = static_cast<int32_t>(graph.values.size()) + slot;
  return {number, number, 0, 1, write, false};
}

}  // namespace

std::vector<Stage> stages_of(const StepGraph& graph) {
  std::map<std::string, int32_t> devices;
  std::vector<StepFacts> all;
  for (const Step& step : graph.steps) {
    StepFacts facts;
    facts.op = step.op;
    facts.device =
        devices.try_emplace(step.device, static_cast<int32_t>(devices.size())).first->second;
    for (const View& in : step.inputs) {
      if (in.value != kAbsent) facts.accesses.push_back(access(in, false, reads_by_row(step.op)));
    }
    for (const View& out : step.outputs) {
      if (out.value != kAbsent) facts.accesses.push_back(access(out, true, is_row_wise(step.op)));
    }
    if (const auto* store = std::get_if<KvStoreAttrs>(&step.attrs)) {
      facts.accesses.push_back(slot_access(graph, store->slot, true));
    }
    if (const auto* attention = std::get_if<AttentionAttrs>(&step.attrs)) {
      facts.accesses.push_back(slot_access(graph, attention->slot, false));
    }
    const std::vector<View>& rows = step.outputs.empty() ? step.inputs : step.outputs;
    if (!rows.empty()) facts.rows = graph.values[rows[0].value].rows;
    all.push_back(std::move(facts));
  }
  return find_stages(all);
}

}  // namespace ktx::steps

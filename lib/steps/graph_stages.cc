#include "lib/steps/graph_stages.h"

#include <map>
#include <string>

#include "lib/launches/parts.h"
#include "lib/steps/graph_step_list.h"
#include "lib/target/host_device.h"

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

int64_t width(const std::vector<View>& views) {
  return views.empty() ? 0 : views[0].width;
}

bool on_cpu(const Step& step) {
  return target::is_cpu(step.device) && step.op != StepOp::Transfer;
}

void add_shifted(const std::vector<Stage>& stages, size_t first, std::vector<Stage>& out) {
  const auto shift = static_cast<int32_t>(first);
  for (Stage stage : stages) {
    for (int32_t& index : stage.prelude) index += shift;
    for (auto& part : stage.parts) {
      for (int32_t& index : part) index += shift;
    }
    out.push_back(std::move(stage));
  }
}

// Deferred experts need nothing of the layer that they stand in. They stay there: steps that move
// further than find_stages looks back would be in other stages when these are found again.
bool begins_deferred(const Step& step) {
  const auto* group = std::get_if<GroupExpertsAttrs>(&step.attrs);
  return group && group->first_rank > 0;
}

// Threads share out what stands between two GPU steps or transfers, in a part of the CPU
// (launches/parts.h); those keep their order, in which a GPU's work is queued
// (insert_transfers.cc).
std::vector<Stage> stages_by_run(const StepGraph& graph, const std::vector<StepFacts>& all) {
  std::vector<Stage> out;
  const launches::CpuWaits waits = launches::find_cpu_waits(step_list(graph));
  for (size_t begin = 0; begin < all.size();) {
    size_t end = begin + 1;
    if (on_cpu(graph.steps[begin])) {
      while (end < all.size() && on_cpu(graph.steps[end]) &&
             graph.steps[end].device == graph.steps[begin].device && !waits.later(end) &&
             !begins_deferred(graph.steps[end])) {
        ++end;
      }
    }
    add_shifted(find_stages(std::span(all).subspan(begin, end - begin)), begin, out);
    begin = end;
  }
  return out;
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
    facts.inner_rows = inner_rows(step.op, step.attrs, width(step.inputs), width(step.outputs));
    const int32_t slot = kv_slot_of(step.attrs);
    if (slot >= 0) {
      facts.accesses.push_back(slot_access(graph, slot, step.op == StepOp::KvStore));
    }
    const std::vector<View>& rows = step.outputs.empty() ? step.inputs : step.outputs;
    if (!rows.empty()) facts.rows = graph.values[rows[0].value].rows;
    all.push_back(std::move(facts));
  }
  return stages_by_run(graph, all);
}

}  // namespace ktx::steps

#include "lib/steps/graph_step_list.h"

namespace ktx::steps {
namespace {

std::vector<launches::ListedOperand> operands(const std::vector<View>& views) {
  std::vector<launches::ListedOperand> out;
  out.reserve(views.size());
  for (const View& view : views) out.push_back({view.value, view.offset, view.width});
  return out;
}

}  // namespace

launches::StepList step_list(const StepGraph& graph) {
  launches::StepList list;
  for (const Value& value : graph.values) {
    list.values.push_back({value.buffer, value.rows, row_bytes(value) / 4, value.rows_per_row});
  }
  for (const Step& step : graph.steps) {
    launches::ListedStep& listed = list.steps.emplace_back();
    listed.op = step.op;
    listed.layer = step.layer;
    listed.device = step.device;
    listed.inputs = operands(step.inputs);
    listed.outputs = operands(step.outputs);
    listed.attrs = step.attrs;
    for (BlobId id : step.weights) {
      launches::ListedWeight& weight = listed.weights.emplace_back();
      if (id == kAbsent) continue;
      const Blob& blob = graph.blobs[id];
      weight = {blob.dtype, blob.layout, blob.rows, blob.cols, blob.matrices, id};
    }
  }
  if (!list.steps.empty()) list.logits = list.output(list.steps.size() - 1);
  return list;
}

}  // namespace ktx::steps

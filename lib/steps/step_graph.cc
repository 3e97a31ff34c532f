#include "lib/steps/step_graph.h"

#include "lib/ops/value_row.h"

namespace ktx::steps {

View StepGraph::whole(ValueId value) const {
  const Value& v = values[value];
  return {value, 0, v.width * v.rows_per_row};
}

std::vector<std::string> value_devices(const StepGraph& graph) {
  std::vector<std::string> devices(graph.values.size());
  for (const Step& step : graph.steps) {
    for (const View& view : step.outputs) {
      if (view.value >= 0 && devices[view.value].empty()) devices[view.value] = step.device;
    }
  }
  return devices;
}

int64_t row_bytes(const Value& value) {
  return value_row_bytes(value.type, value.width) * value.rows_per_row;
}

}  // namespace ktx::steps

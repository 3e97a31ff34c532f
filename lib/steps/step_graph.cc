#include "lib/steps/step_graph.h"

#include "lib/formats/act_q8.h"

namespace ktx::steps {

View StepGraph::whole(ValueId value) const {
  const Value& v = values[value];
  return {value, 0, v.width * v.rows_per_row};
}

int64_t row_bytes(const Value& value) {
  const int64_t one = value.type == ValueType::Q8 ? act_q8_row_bytes(value.width) : value.width * 4;
  return one * value.rows_per_row;
}

}  // namespace ktx::steps

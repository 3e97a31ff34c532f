#include "lib/program/program.h"

#include <algorithm>

#include "lib/formats/layout_size.h"
#include "lib/ops/value_row.h"

namespace ktx::program {
namespace {

ValueId value_of(const std::vector<View>& operands, size_t number) {
  return number < operands.size() ? operands[number].value : kAbsent;
}

}  // namespace

View Program::whole(ValueId value) const {
  return {value, 0, row_elements(values[value])};
}

ValueId Program::input(size_t step, size_t operand) const {
  return value_of(steps[step].inputs, operand);
}

ValueId Program::output(size_t step, size_t operand) const {
  return value_of(steps[step].outputs, operand);
}

RowKind Program::rows(const Step& step) const {
  const ValueId value = value_of(step.outputs.empty() ? step.inputs : step.outputs, 0);
  return value == kAbsent ? RowKind::Token : values[value].rows;
}

const Blob* Program::weight(const Step& step, size_t number) const {
  if (number >= step.weights.size() || step.weights[number] == kAbsent) return nullptr;
  return &blobs[step.weights[number]];
}

size_t Program::last_writer(ValueId value, size_t end) const {
  for (size_t i = std::min(end, steps.size()); i-- > 0;) {
    if (std::ranges::find(steps[i].outputs, value, &View::value) != steps[i].outputs.end()) {
      return i;
    }
  }
  return steps.size();
}

size_t Program::head() const {
  size_t step = last_writer(logits());
  while (step < steps.size()) {
    const View& y = steps[step].outputs[0];
    const bool brings_part = steps[step].op == StepOp::Scale && y != whole(y.value);
    if (steps[step].op == StepOp::Transfer) {
      step = last_writer(input(step, 0));
    } else if (brings_part) {
      step = last_writer(y.value, step);
    } else {
      break;
    }
  }
  return step < steps.size() && steps[step].op == StepOp::Matmul ? step : steps.size();
}

std::vector<std::string> value_devices(const Program& program) {
  std::vector<std::string> devices(program.values.size());
  for (const Step& step : program.steps) {
    for (const View& view : step.outputs) {
      if (view.value >= 0 && devices[view.value].empty()) devices[view.value] = step.device;
    }
  }
  return devices;
}

std::vector<std::string> buffer_devices(const Program& program) {
  std::vector<std::string> devices(program.buffers.size());
  for (const Step& step : program.steps) {
    for (const View& view : step.outputs) {
      if (view.value == kAbsent) continue;
      std::string& device = devices[program.values[view.value].buffer];
      if (device.empty()) device = step.device;
    }
  }
  std::ranges::replace(devices, std::string(), std::string("cpu"));
  return devices;
}

std::vector<Buffer> buffers_on(const Program& program, std::string_view device) {
  const std::vector<std::string> devices = buffer_devices(program);
  std::vector<Buffer> buffers = program.buffers;
  for (size_t i = 0; i < buffers.size(); ++i) {
    if (devices[i] != device) buffers[i] = {};
  }
  return buffers;
}

uint64_t blob_bytes(const Blob& blob, Layout layout) {
  const auto matrix = matrix_bytes(layout, blob.dtype, blob.rows, blob.cols);
  return static_cast<uint64_t>(matrix.value_or(0)) * static_cast<uint64_t>(blob.matrices);
}

int64_t row_bytes(const Value& value) {
  return value_row_bytes(value.type, value.width) * value.rows_per_row;
}

}  // namespace ktx::program

#include "lib/runtime/gpu/watched_steps.h"

#include <fmt/format.h>

#include <cmath>

#include "lib/runtime/engine/engine_options.h"
#include "lib/runtime/gpu/gpu_queue.h"
#include "lib/runtime/gpu/step_bytes.h"
#include "lib/support/strings.h"
#include "lib/support/timer.h"

namespace ktx::runtime {
namespace {

// Rows of pairs whose experts are on another device stay as they are: zero, where they are looked
// at.
Status clear_hidden(GpuState& s, const Part& part, const program::Step& step,
                    const GpuShape& shape) {
  if (step.op != StepOp::ExpertsGateUp) return {};
  const program::ValueId value = step.outputs[0].value;
  const auto bytes =
      static_cast<uint64_t>(program::row_bytes(s.program.values[value]) * shape.tokens);
  return s.devices[part.device].gpu->clear(s.place(part.device, value), bytes);
}

// What the step wrote in the device's memory, row by row.
Status check_outputs(GpuState& s, const Part& part, uint32_t index, const GpuShape& shape) {
  const program::Step& step = s.program.steps[index];
  if (step.device == "cpu") return {};
  GpuDevice& device = s.devices[part.device];
  for (const program::View& operand : step.outputs) {
    const program::Value& value = s.program.values[operand.value];
    if (value.type != ValueType::F32) continue;
    const int64_t stride = program::row_elements(value);
    std::vector<float> rows(static_cast<size_t>(shape.rows(value.rows) * stride));
    KTX_TRY(device.gpu->download(reinterpret_cast<std::byte*>(rows.data()),
                                 s.place(part.device, operand.value), rows.size() * 4));
    KTX_TRY(device.gpu->finish());
    if (s.setup.on_result) {
      s.setup.on_result({value.name, step.layer, rows, stride, operand.offset, operand.width});
    }
    for (size_t i = 0; i < rows.size() && s.setup.check_finite; ++i) {
      const int64_t column = static_cast<int64_t>(i) % stride - operand.offset;
      if (column < 0 || column >= operand.width || std::isfinite(rows[i])) continue;
      return s.in_step(index, device.name,
                       Error{fmt::format("row {}, element {} of '{}' is {}; the weights or the "
                                         "prompt overflow here",
                                         static_cast<int64_t>(i) / stride, column,
                                         printable(value.name), rows[i])});
    }
  }
  return {};
}

}  // namespace

Status run_watched(GpuState& s, const Part& part, const Batch& batch, const GpuShape& shape) {
  GpuDevice& device = s.devices[part.device];
  for (uint32_t i = part.first_step; i < part.first_step + part.step_count; ++i) {
    if (s.looks_at_results()) KTX_TRY(clear_hidden(s, part, s.program.steps[i], shape));
    KTX_TRY(device.gpu->finish());
    const Timer timer;
    KTX_TRY(queue_step(s, part, i, shape));
    const Status done = device.gpu->finish();
    if (!done) return s.in_step(i, device.name, done.error());
    if (!s.times.empty()) {
      s.times[i].seconds += timer.seconds();
      s.times[i].runs += 1;
      s.times[i].tokens += batch.tokens;
      s.times[i].weight_bytes += step_weight_bytes(s.program, s.program.steps[i], batch.tokens);
    }
    if (s.setup.check_finite || s.setup.on_result) KTX_TRY(check_outputs(s, part, i, shape));
  }
  return {};
}

}  // namespace ktx::runtime

// Gives products with quantised weights int8 inputs, for fast precision.
//
//   y = matmul(n, -)      becomes     nq = quantize(n)
//                                     y = matmul(n, nq)
//
// One quantize serves every product that reads the same elements until they are
// written again. Exact precision leaves these steps out and reads n itself.
// Weights in F32, F16 or BF16 take float inputs in both; so do all products of a GPU,
// whose kernels round their inputs as they read them.
#include <limits>
#include <map>

#include "kernels/matmul/matmul.h"
#include "lib/passes/pass.h"
#include "lib/target/host_device.h"

namespace ktx::passes {
namespace {

using program::Step;
using program::View;

// Which rows of the input a product reads: rows of `width` elements, `stride`
// apart.
struct RowShape {
  int32_t rows_per_token = 1;
  int32_t stride = 0;
  int64_t width = 0;
  auto operator<=>(const RowShape&) const = default;
};

// The shape of the product's input rows, or width 0 when it takes no int8 input.
RowShape int8_rows(const program::Program& program, const Step& step) {
  const auto weight_of = [&](size_t i) -> const program::Blob& {
    return program.blobs[step.weights[i]];
  };
  RowShape shape;
  if (!target::is_cpu(step.device)) return shape;
  bool quantized = false;
  if (step.op == StepOp::Matmul) {
    quantized = kernels::matmul_q8_takes(weight_of(0).dtype);
    shape = {1, static_cast<int32_t>(step.inputs[0].width), step.inputs[0].width};
  } else if (step.op == StepOp::ExpertsGateUp) {
    quantized = kernels::matmul_q8_takes(weight_of(0).dtype) &&
                kernels::matmul_q8_takes(weight_of(1).dtype);
    shape = {1, static_cast<int32_t>(step.inputs[0].width), step.inputs[0].width};
  } else if (step.op == StepOp::ExpertsDown) {
    const program::Value& hidden = program.values[step.inputs[0].value];
    quantized = kernels::matmul_q8_takes(weight_of(0).dtype);
    shape = {hidden.rows_per_row, static_cast<int32_t>(hidden.width), hidden.width};
  } else if (step.op == StepOp::MatmulHeads) {
    const auto& attrs = std::get<MatmulHeadsAttrs>(step.attrs);
    // The transposed product runs along the quant blocks' rows: float input.
    quantized = kernels::matmul_q8_takes(weight_of(0).dtype) && !attrs.transposed;
    shape = {attrs.heads, attrs.x_stride, weight_of(0).cols};
  }
  if (!quantized || shape.width % 32 != 0) shape.width = 0;
  return shape;
}

}  // namespace

Status quantize_activations(CompileState& state) {
  program::Program& program = state.program;
  struct Key {
    program::ValueId value;
    int64_t offset;
    RowShape shape;
    auto operator<=>(const Key&) const = default;
  };
  std::map<Key, View> quantized;  // int8 forms that still hold
  std::vector<Step> out;
  for (Step& step : program.steps) {
    const RowShape shape = int8_rows(program, step);
    if (shape.width > 0) {
      const View in = step.inputs[0];
      const Key key{in.value, in.offset, shape};
      auto found = quantized.find(key);
      if (found == quantized.end()) {
        const program::Value source = program.values[in.value];
        program.values.push_back({source.name + ".q8." + std::to_string(program.values.size()),
                                  ValueType::Q8, source.rows, shape.rows_per_token, shape.width,
                                  program::kAbsent});
        const View whole = program.whole(static_cast<program::ValueId>(program.values.size()) - 1);
        Step quantize;
        quantize.op = StepOp::Quantize;
        quantize.module = step.module;
        quantize.layer = step.layer;
        quantize.device = step.device;
        quantize.inputs = {in};
        quantize.outputs = {whole};
        quantize.attrs = QuantizeAttrs{shape.rows_per_token, shape.stride};
        out.push_back(std::move(quantize));
        found = quantized.emplace(key, whole).first;
      }
      step.inputs[1] = found->second;
    }
    for (const View& view : step.outputs) {
      const auto first =
          quantized.lower_bound({view.value, std::numeric_limits<int64_t>::min(), {}});
      auto last = first;
      while (last != quantized.end() && last->first.value == view.value) ++last;
      quantized.erase(first, last);
    }
    out.push_back(std::move(step));
  }
  program.steps = std::move(out);
  return {};
}

}  // namespace ktx::passes

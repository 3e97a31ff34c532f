// Gives each weight a layout and names a kernel family for each step and precision. What a GPU
// runs for how many tokens follows in choose-launches.
//
//   every product that reads a weight can read panels  -> panel16s of the types that have
//                                                         it, panel16 of the others
//                                                         and with --inputs=bf16
//   anything else (norms, transposed products, types)  -> rows, the GGUF bytes
//
// unless a rule asks for a layout (asked_layout.h). Where several modules share a weight,
// one that asks for rows is heard.
//
// A family fixes arithmetic and layout; the instruction set is chosen when the plan is
// loaded (kernels/kernel_id.h). Every CPU reads every layout of the CPU, and panels are
// best on all of them, so the layout does not depend on the target's instructions. Asked for
// it (--inputs=bf16), products take BF16 activations instead of int8 ones, in the order of a
// matrix tile (matmul_panel16_tile_bf16), with the same bits on all machines. A
// table that the output head shares with the embedding is in panels too.
#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string_view>
#include <unordered_map>

#include "kernels/kernel_id.h"
#include "kernels/matmul/matmul.h"
#include "lib/formats/layout_size.h"
#include "lib/passes/asked_layout.h"
#include "lib/passes/pass.h"
#include "lib/target/host_device.h"

namespace ktx::passes {
namespace {

bool is_transposed(const program::Step& step) {
  const auto* attrs = std::get_if<MatmulHeadsAttrs>(&step.attrs);
  return attrs && attrs->transposed;
}

// What a step says about the layout of its weight number i.
enum class Wish { Rows, Panels, Any };

Wish wish_of(const program::Step& step, size_t i) {
  if (step.op == StepOp::Embed) return Wish::Any;
  if (i >= product_weights(step.op)) return Wish::Rows;
  const auto* heads = std::get_if<MatmulHeadsAttrs>(&step.attrs);
  return heads && (heads->transposed || heads->row_begin % kPanelRows != 0) ? Wish::Rows
                                                                            : Wish::Panels;
}

bool can_have(const program::Blob& blob, Layout layout) {
  return blob.constant.empty() &&
         layout_obstacle(layout, blob.device, blob.dtype, blob.rows, blob.cols, blob.matrices)
             .empty();
}

// By the path of a module: its decision.
using Decisions = std::unordered_map<std::string_view, const ir::Decision*>;

std::optional<Layout> asked_by(const Decisions& decisions, const program::Step& step) {
  const auto found = decisions.find(step.module);
  return found == decisions.end() ? std::nullopt : asked_layout(*found->second);
}

bool asks_for_panels(std::optional<Layout> asked) {
  return asked && in_panels(*asked);
}

// A layout requested by a rule, not by the defaults, is mandatory.
Status refuse_unheard(const program::Program& program, const Decisions& decisions,
                      const std::vector<bool>& able) {
  for (const program::Step& step : program.steps) {
    const std::optional<Layout> asked = asked_by(decisions, step);
    if (!asks_for_panels(asked) || !target::is_cpu(step.device)) continue;
    if (decisions.at(step.module)->rule < 0) continue;
    const size_t matrices = std::max<size_t>(product_weights(step.op), 1);
    for (size_t i = 0; i < std::min(matrices, step.weights.size()); ++i) {
      const program::BlobId blob = step.weights[i];
      if (blob == program::kAbsent || able[blob] || program.blobs[blob].rows <= 1) continue;
      return Error{
          fmt::format("layout {} cannot be had for '{}' of module '{}': another step reads "
                      "its rows; leave the module out of the rule",
                      name(*asked), program.blobs[blob].name, step.module)};
    }
  }
  return {};
}

// Products with BF16 inputs know no panel16s.
Layout layout_of_panels(DType dtype, bool bf16_inputs) {
  return bf16_inputs ? Layout::Panel16 : panel_layout(dtype);
}

Status choose_layouts(program::Program& program, const Decisions& decisions, bool bf16_inputs) {
  std::vector<bool> able(program.blobs.size()), wanted(program.blobs.size());
  for (size_t i = 0; i < program.blobs.size(); ++i)
    able[i] = can_have(program.blobs[i], Layout::Panel16);
  for (const program::Step& step : program.steps) {
    const std::optional<Layout> asked = asked_by(decisions, step);
    for (size_t i = 0; i < step.weights.size(); ++i) {
      const program::BlobId blob = step.weights[i];
      if (blob == program::kAbsent) continue;
      const Wish wish = wish_of(step, i);
      if (wish == Wish::Rows || asked == Layout::Rows) able[blob] = false;
      if (wish == Wish::Panels || asks_for_panels(asked)) wanted[blob] = true;
    }
  }
  // One kernel reads gate and up.
  for (const program::Step& step : program.steps) {
    if (step.op != StepOp::ExpertsGateUp) continue;
    const bool both = able[step.weights[0]] && able[step.weights[1]];
    able[step.weights[0]] = able[step.weights[1]] = both;
  }
  for (size_t i = 0; i < program.blobs.size(); ++i) {
    program::Blob& blob = program.blobs[i];
    const bool panels = able[i] && wanted[i];
    blob.layout = panels ? layout_of_panels(blob.dtype, bf16_inputs) : Layout::Rows;
  }
  for (const program::Step& step : program.steps) {
    if (step.op != StepOp::ExpertsGateUp) continue;
    program::Blob& gate = program.blobs[step.weights[0]];
    program::Blob& up = program.blobs[step.weights[1]];
    if (gate.layout != up.layout) gate.layout = up.layout = Layout::Panel16;
  }
  return refuse_unheard(program, decisions, able);
}

// The dtype that decides a step's family: that of its weights; F32 when two weights of one
// step are neither of one type nor both take int8 inputs.
DType deciding_dtype(const program::Program& program, const program::Step& step) {
  if (step.weights.empty() || step.weights[0] == program::kAbsent) return DType::F32;
  const DType first = program.blobs[step.weights[0]].dtype;
  if (step.op != StepOp::ExpertsGateUp) return first;
  const DType second = program.blobs[step.weights[1]].dtype;
  if (first == second) return first;
  return kernels::matmul_q8_takes(first) && kernels::matmul_q8_takes(second) ? first : DType::F32;
}

Layout deciding_layout(const program::Program& program, const program::Step& step) {
  if (step.weights.empty() || step.weights[0] == program::kAbsent) return Layout::Rows;
  return program.blobs[step.weights[0]].layout;
}

// Whether a step can read its product input number 1 as BF16, or reads it not.
bool takes_bf16(const program::Program& program, const program::Step& step) {
  for (size_t i = 0; i < product_weights(step.op); ++i) {
    const program::Blob& blob = program.blobs[step.weights[i]];
    if (!kernels::tile_bf16_takes(blob.dtype, blob.layout)) return false;
  }
  return !is_transposed(step);
}

// Product inputs become BF16 if all products that read them have weights for it.
void choose_inputs(program::Program& program) {
  std::vector<bool> able(program.values.size(), true);
  const auto input_of = [&](const program::Step& step) {
    const bool reads = step.inputs.size() > 1 && step.inputs[1].value != program::kAbsent &&
                       is_product_input(program.values[step.inputs[1].value].type);
    return reads ? step.inputs[1].value : program::kAbsent;
  };
  for (const program::Step& step : program.steps) {
    const program::ValueId value = input_of(step);
    if (value != program::kAbsent && !takes_bf16(program, step)) able[value] = false;
  }
  for (const program::Step& step : program.steps) {
    if (step.op != StepOp::Quantize || !able[step.outputs[0].value]) continue;
    program::Value& value = program.values[step.outputs[0].value];
    value.type = ValueType::BF16;
    if (const size_t at = value.name.rfind(".q8."); at != std::string::npos) {
      value.name.replace(at, 4, ".bf16.");
    }
  }
}

// The type of the values that a step quantizes to, or that a product reads.
ValueType product_input(const program::Program& program, const program::Step& step) {
  const program::ValueId value = step.op == StepOp::Quantize ? step.outputs[0].value
                                 : step.inputs.size() > 1    ? step.inputs[1].value
                                                             : program::kAbsent;
  return value == program::kAbsent ? ValueType::Q8 : program.values[value].type;
}

// On a GPU: tiles for the weights of products, for the formats that have them. A table
// that only the embedding reads stays in rows.
void choose_gpu_layouts(program::Program& program) {
  for (const program::Step& step : program.steps) {
    if (target::is_cpu(step.device) || kernels::gpu_kernel_family(step.op) != "gpu_matmul")
      continue;
    for (size_t i = 0; i < product_weights(step.op); ++i) {
      program::Blob& blob = program.blobs[step.weights[i]];
      if (matrix_bytes(Layout::Marlin, blob.dtype, blob.rows, blob.cols)) {
        blob.layout = Layout::Marlin;
      }
    }
  }
}

}  // namespace

Status choose_kernels(CompileState& state) {
  constexpr kernels::Precision kPrecision[] = {kernels::Precision::Exact, kernels::Precision::Fast};
  Decisions decisions;
  for (const ir::Module& module : state.modules.modules) decisions[module.path] = &module.decision;
  KTX_TRY(choose_layouts(state.program, decisions, state.bf16_inputs));
  choose_gpu_layouts(state.program);
  if (state.bf16_inputs) choose_inputs(state.program);
  for (program::Step& step : state.program.steps) {
    const DType dtype = deciding_dtype(state.program, step);
    const Layout layout = deciding_layout(state.program, step);
    for (int p = 0; p < program::kPrecisions; ++p) {
      const bool gpu = !target::is_cpu(step.device);
      const std::string_view family =
          gpu ? kernels::gpu_kernel_family(step.op)
              : kernels::kernel_family(step.op, kPrecision[p], dtype, is_transposed(step), layout,
                                       product_input(state.program, step));
      if (family.empty() && step.op != StepOp::Quantize) {
        return Error{fmt::format("no kernel for step '{}' of module '{}' with {} weights",
                                 info(step.op).name, step.module, name(dtype))};
      }
      step.kernels[p] = family;
    }
  }
  return {};
}

}  // namespace ktx::passes

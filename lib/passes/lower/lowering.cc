// Values, steps, blobs, products and norms of a module graph that is lowered.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "lib/formats/layout.h"
#include "lib/passes/lower/lowering.h"

namespace ktx::passes {

using ir::Module;
using ir::Param;
using ir::Role;
using program::BlobId;
using program::kAbsent;
using program::ValueId;
using program::View;

Result<const Module*> Lowering::child(const Module& parent, Role role) const {
  const Module* found = modules_.child(parent, role);
  if (found) return found;
  return Error{fmt::format("module '{}' has no {}", parent.path, name(role))};
}

// Layers reuse value names with their number in front; memory is shared later.
View Lowering::value(const std::string& base, int64_t width, ValueType type, RowKind rows,
                     int32_t rows_per_row) {
  const std::string unique = layer_ < 0 ? base : fmt::format("L{}.{}", layer_, base);
  program_.values.push_back({unique, type, rows, rows_per_row, width, kAbsent});
  return program_.whole(static_cast<ValueId>(program_.values.size()) - 1);
}

void Lowering::emit_on(const std::string& device, const Module& module, StepOp op,
                       std::vector<View> inputs, std::vector<View> outputs,
                       std::vector<BlobId> weights, StepAttrs attrs) {
  program::Step step;
  step.op = op;
  step.module = module.path;
  step.layer = module.layer;
  step.device = device;
  step.inputs = std::move(inputs);
  step.outputs = std::move(outputs);
  step.weights = std::move(weights);
  step.attrs = std::move(attrs);
  program_.steps.push_back(std::move(step));
}

// The blob of a parameter; one blob however many steps use it (tied embeddings,
// an unsplit kv_b). Named after its tensors; `matrices` re-reads the rows as
// that many matrices of equal size.
Result<BlobId> Lowering::blob(const Module& module, std::string_view param_name, int64_t matrices) {
  const Param* param = module.param(param_name);
  if (!param) {
    return Error{fmt::format("module '{}' has no parameter '{}'", module.path, param_name)};
  }
  return blob(module, param, matrices);
}

Result<BlobId> Lowering::blob(const Module& module, const Param* param, int64_t matrices) {
  return blob_on(module.decision.device, module, param, matrices);
}

Result<BlobId> Lowering::blob_on(const std::string& device, const Module& module,
                                 const Param* param, int64_t matrices) {
  const int64_t all_rows = param->rows * param->matrices;
  if (matrices == 0) matrices = param->matrices;
  if (all_rows % matrices != 0) {
    return Error{fmt::format("'{}' of '{}' has {} rows, no multiple of {} heads", param->name,
                             module.path, all_rows, matrices)};
  }
  std::string blob_name;
  for (const TensorSlice& slice : param->sources) {
    blob_name += (blob_name.empty() ? "" : "+") + slice.tensor;
    if (slice.row_count >= 0) {
      blob_name += fmt::format("[{},{})", slice.first_row, slice.first_row + slice.row_count);
    }
    if (blob_name.size() > 200) {  // hundreds of unstacked experts: first ... last would do
      blob_name = fmt::format("{}.{}", module.path, param->name);
      break;
    }
  }
  blob_name += "@" + device;
  const auto [it, added] = blob_ids_.try_emplace(blob_name, program_.blobs.size());
  if (added) {
    program_.blobs.push_back({blob_name,
                              param->dtype,
                              Layout::Rows,
                              all_rows / matrices,
                              param->cols,
                              matrices,
                              param->sources,
                              {},
                              device});
  }
  return it->second;
}

Result<BlobId> Lowering::optional_blob(const Module& module, std::string_view param_name) {
  if (!module.param(param_name)) return BlobId{kAbsent};
  return blob(module, param_name);
}

// Without the absent ones at the end, but for the first `least`.
std::vector<BlobId> Lowering::present(std::vector<BlobId> blobs, size_t least) {
  while (blobs.size() > least && blobs.back() == kAbsent) blobs.pop_back();
  return blobs;
}

// Where the attention is: layers on several devices may share one rotary module.
BlobId Lowering::inv_freq_blob(const Module& module, const ir::RotaryInfo& rotary,
                               const std::string& device) {
  return constant(fmt::format("{}.inv_freq@{}", module.path, device), rotary.inv_freq, device);
}

BlobId Lowering::constant(const std::string& blob_name, const std::vector<float>& values,
                          const std::string& device) {
  const auto [it, added] = blob_ids_.try_emplace(blob_name, program_.blobs.size());
  if (added) {
    program_.blobs.push_back({blob_name,
                              DType::F32,
                              Layout::Rows,
                              1,
                              static_cast<int64_t>(values.size()),
                              1,
                              {},
                              values,
                              device});
  }
  return it->second;
}

// The weights of norms that have none.
BlobId Lowering::ones_blob(int64_t width, const Module& module) {
  const std::string& device = module.decision.device;
  return constant(fmt::format("ones.{}@{}", width, device),
                  std::vector<float>(static_cast<size_t>(width), 1.0f), device);
}

Status Lowering::matmul(const Module& module, View in, View out) {
  const BlobId weight = KTX_TRY(blob(module, "weight"));
  const BlobId bias = KTX_TRY(optional_blob(module, "bias"));
  emit(module, StepOp::Matmul, {in, View{}}, {out}, {weight, bias}, MatmulAttrs{});
  return apply_factor(module, out);
}

// Applies the factor of a linear's product (NVFP4).
Status Lowering::apply_factor(const Module& module, View out) {
  const auto* linear_info = std::get_if<ir::LinearInfo>(&module.info);
  if (linear_info == nullptr || linear_info->factor == 1) return {};
  if (module.param("bias")) {
    return Error{
        fmt::format("module '{}' has a factor and a bias, which is not supported", module.path)};
  }
  scale_by(module, out, linear_info->factor);
  return {};
}

// The product into a new value of the linear's width.
Result<View> Lowering::linear(const Module& parent, Role role, View in, const char* value_name) {
  const Module* module = KTX_TRY(child(parent, role));
  const ir::LinearInfo* linear_info = KTX_TRY(info_of<ir::LinearInfo>(*module));
  const View out = value(value_name, linear_info->out);
  KTX_TRY(matmul(*module, in, out));
  return out;
}

// The same of the fused linear's rows [first, first + out.width) where the parent has one.
Result<View> Lowering::part_linear(const Module& parent, Role role, Role fused, int64_t first,
                                   int64_t rows, View in, const char* value_name) {
  const Module* module = modules_.child(parent, fused);
  if (!module) return linear(parent, role, in, value_name);
  const View out = value(value_name, rows);
  const bool gate = role == Role::GateProj;
  if (role != Role::QProj && module->param(gate ? "gate" : "up")) {  // two tensors in the file
    const BlobId half = KTX_TRY(blob(*module, gate ? "gate" : "up"));
    emit(*module, StepOp::Matmul, {in, View{}}, {out}, {half, kAbsent}, MatmulAttrs{});
    return out;
  }
  const Param* weight = module->param("weight");
  if (!weight) return Error{fmt::format("module '{}' has no weight", module->path)};
  const Param part = KTX_TRY(rows_of(*module, *weight, first, rows));
  BlobId bias_blob = kAbsent;
  if (const Param* bias = module->param("bias")) {
    const Param bias_part = KTX_TRY(rows_of(*module, *bias, first, rows));
    bias_blob = KTX_TRY(blob(*module, &bias_part));
  }
  const BlobId weight_blob = KTX_TRY(blob(*module, &part));
  emit(*module, StepOp::Matmul, {in, View{}}, {out}, {weight_blob, bias_blob}, MatmulAttrs{});
  KTX_TRY(apply_factor(*module, out));
  return out;
}

// Some rows of a matrix, or elements of a vector, whose slices count in parts of equal size.
Result<Param> Lowering::rows_of(const Module& module, const Param& whole, int64_t first,
                                int64_t rows) {
  const bool vector = whole.rows == 1;
  const int64_t all = vector ? whole.cols : whole.rows;
  if (whole.sources.size() != 1 || whole.sources[0].row_count != -1 || first + rows > all ||
      (vector && first % rows != 0)) {
    return Error{fmt::format("'{}' of '{}' cannot be cut into rows {} to {} of {}", whole.name,
                             module.path, first, first + rows, all)};
  }
  Param part = whole;
  part.sources = {{whole.sources[0].tensor, vector ? first / rows : first, vector ? 1 : rows}};
  (vector ? part.cols : part.rows) = rows;
  return part;
}

// Each group of the norm's width by itself: whole rows, or heads.
Status Lowering::norm(const Module& module, View in, View out) {
  const ir::NormInfo* norm_info = KTX_TRY(info_of<ir::NormInfo>(module));
  const BlobId weight = module.param("weight") ? KTX_TRY(blob(module, "weight"))
                                               : ones_blob(norm_info->width, module);
  const auto groups = static_cast<int32_t>(in.width / std::max<int64_t>(norm_info->width, 1));
  if (norm_info->layer_norm) {
    const BlobId bias = KTX_TRY(optional_blob(module, "bias"));
    emit(module, StepOp::LayerNorm, {in}, {out}, {weight, bias},
         LayerNormAttrs{norm_info->eps, groups});
    if (norm_info->factor != 1) scale_by(module, out, norm_info->factor);
    return {};
  }
  emit(module, StepOp::RmsNorm, {in}, {out}, {weight}, RmsNormAttrs{norm_info->eps, groups});
  if (norm_info->factor != 1) scale_by(module, out, norm_info->factor);
  return {};
}

// In place, where the parent has such a norm.
Status Lowering::optional_norm(const Module& parent, Role role, View view) {
  const Module* module = modules_.child(parent, role);
  return module ? norm(*module, view, view) : Status{};
}

}  // namespace ktx::passes

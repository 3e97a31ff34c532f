// State-space layers (Mamba-2), lowered: causal convolution, state space with a state of a fixed
// size, gate and norm.
#include "lib/passes/lower/lowering.h"

namespace ktx::passes {

using ir::Module;
using ir::Role;
using program::BlobId;
using program::View;

Result<Lowering::Term> Lowering::lower_state_space(const Module& space, View in) {
  const ir::StateSpaceInfo* s = KTX_TRY(info_of<ir::StateSpaceInfo>(space));
  const View projected = KTX_TRY(linear(space, Role::SsmInProj, in, "ssm_in"));
  const int64_t width = s->width();
  const View gate{projected.value, 0, width};
  const View mixed{projected.value, width, s->channels()};
  const View dt{projected.value, width + s->channels(), s->heads};

  const View x = value("ssm_x", s->channels());
  const BlobId conv = KTX_TRY(blob(space, "conv"));
  const BlobId conv_bias = KTX_TRY(optional_blob(space, "conv_bias"));
  emit(space, StepOp::CausalConv, {mixed}, {x}, present({conv, conv_bias}, 1),
       CausalConvAttrs{states_++, static_cast<int32_t>(s->channels()), s->taps});
  const View out = value("ssm", width);
  const BlobId decay = KTX_TRY(blob(space, "decay"));
  const BlobId skip = KTX_TRY(blob(space, "skip"));
  const BlobId dt_bias = KTX_TRY(blob(space, "dt_bias"));
  emit(space, StepOp::StateSpace, {x, dt}, {out}, {decay, skip, dt_bias},
       StateSpaceAttrs{states_++, s->heads, s->head_dim, s->groups, s->state_dim});

  if (s->norm_first) KTX_TRY(norm_groups(space, out));
  emit(space, StepOp::Glu, {gate, out}, {out}, {}, GluAttrs{});
  if (!s->norm_first) KTX_TRY(norm_groups(space, out));
  return term(space, Role::OProj, out, "ssm_out");
}

// Each group of the row with weights of its own, which are a row of the norm's; beside the state,
// whose output no step on another device writes parts of.
Status Lowering::norm_groups(const Module& space, View view) {
  const Module* module = modules_.child(space, Role::SsmNorm);
  if (!module) return {};
  const ir::NormInfo* info = KTX_TRY(info_of<ir::NormInfo>(*module));
  const Param* weight = module->param("weight");
  if (!weight) return Error{fmt::format("module '{}' has no weight", module->path)};
  const std::string& device = space.decision.device;
  for (int32_t group = 0; group < info->groups; ++group) {
    const View part{view.value, view.offset + group * info->width, info->width};
    const Param own = info->groups == 1 ? *weight : KTX_TRY(rows_of(*module, *weight, group, 1));
    const BlobId row = KTX_TRY(blob_on(device, *module, &own));
    emit_on(device, *module, StepOp::RmsNorm, {part}, {part}, {row}, RmsNormAttrs{info->eps, 1});
  }
  return {};
}

}  // namespace ktx::passes

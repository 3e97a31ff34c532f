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
       StateSpaceAttrs{states_++, s->heads, s->head_dim, s->groups, s->state_dim, s->step_min,
                       s->step_max});

  if (s->norm_first) KTX_TRY(optional_norm(space, Role::SsmNorm, out));
  emit(space, StepOp::Glu, {gate, out}, {out}, {}, GluAttrs{});
  if (!s->norm_first) KTX_TRY(optional_norm(space, Role::SsmNorm, out));
  return term(space, Role::OProj, out, "ssm_out");
}

}  // namespace ktx::passes

// State-space layers (Mamba-1), lowered: causal convolution, steps and vectors made of what it
// gives, the scan with a state of a fixed size, gate.
#include "lib/passes/lower/lowering.h"

namespace ktx::passes {

using ir::Module;
using ir::Role;
using program::BlobId;
using program::View;

Result<Lowering::Term> Lowering::lower_selective_scan(const Module& scan, View in) {
  const ir::SelectiveScanInfo* s = KTX_TRY(info_of<ir::SelectiveScanInfo>(scan));
  const int64_t channels = s->channels, state = s->state_dim;
  const View projected = KTX_TRY(linear(scan, Role::SsmInProj, in, "ssm_in"));
  const View x = value("ssm_x", channels);
  const BlobId conv = KTX_TRY(blob(scan, "conv"));
  const BlobId conv_bias = KTX_TRY(optional_blob(scan, "conv_bias"));
  emit(scan, StepOp::CausalConv, {{projected.value, 0, channels}}, {x},
       present({conv, conv_bias}, 1), CausalConvAttrs{states_++, s->channels, s->taps});

  const View params = KTX_TRY(linear(scan, Role::SsmParamsProj, x, "ssm_params"));
  const View rank{params.value, 0, s->step_rank};
  KTX_TRY(optional_norm(scan, Role::SsmStepNorm, rank));
  KTX_TRY(optional_norm(scan, Role::SsmInputNorm, {params.value, s->step_rank, state}));
  KTX_TRY(optional_norm(scan, Role::SsmOutputNorm, {params.value, s->step_rank + state, state}));
  const View steps = KTX_TRY(linear(scan, Role::SsmStepProj, rank, "ssm_steps"));

  const View out = value("ssm", channels);
  const BlobId decay = KTX_TRY(blob(scan, "decay")), skip = KTX_TRY(blob(scan, "skip"));
  emit(scan, StepOp::SelectiveScan, {x, steps, {params.value, s->step_rank, 2 * state}}, {out},
       {decay, skip}, SelectiveScanAttrs{states_++, s->channels, s->state_dim});
  emit(scan, StepOp::Glu, {{projected.value, channels, channels}, out}, {out}, {}, GluAttrs{});
  return term(scan, Role::OProj, out, "ssm_out");
}

}  // namespace ktx::passes

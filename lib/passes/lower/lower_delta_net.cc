// Gated delta nets, lowered: causal convolution, delta rule with a state of a fixed size, norm and
// gate.
#include "lib/passes/lower/lowering.h"

namespace ktx::passes {

using ir::Module;
using ir::Role;
using program::BlobId;
using program::View;

// The states of a sequence are numbered in the order of the steps that have one.
Result<Lowering::Term> Lowering::lower_delta_net(const Module& net, View in) {
  const ir::DeltaNetInfo* d = KTX_TRY(info_of<ir::DeltaNetInfo>(net));
  if (d->by_channel) return lower_channel_delta_net(net, *d, in);
  const View mixed = KTX_TRY(linear(net, Role::DeltaQkvProj, in, "delta_in"));
  const View gate = KTX_TRY(linear(net, Role::DeltaGateProj, in, "delta_gate"));
  View b, a;
  if (modules_.child(net, Role::DeltaBaProj)) {
    b = KTX_TRY(linear(net, Role::DeltaBaProj, in, "delta_ba"));
  } else {
    b = KTX_TRY(linear(net, Role::DeltaBProj, in, "delta_b"));
    a = KTX_TRY(linear(net, Role::DeltaAProj, in, "delta_a"));
  }
  const View qkv = value("delta_qkv", d->channels());
  const BlobId conv = KTX_TRY(blob(net, "conv"));
  emit(net, StepOp::CausalConv, {mixed}, {qkv}, {conv},
       CausalConvAttrs{states_++, static_cast<int32_t>(d->channels()), d->taps});
  const View out = value("delta", d->width());
  const BlobId decay = KTX_TRY(blob(net, "decay"));
  const BlobId dt_bias = KTX_TRY(blob(net, "dt_bias"));
  emit(net, StepOp::DeltaRule, {qkv, b, a}, {out}, {decay, dt_bias},
       DeltaRuleAttrs{states_++, d->key_heads, d->value_heads, d->head_dim, d->tiled});
  KTX_TRY(norm(*KTX_TRY(child(net, Role::DeltaNorm)), out, out));
  const Activation unit = d->sigmoid_gate ? Activation::Sigmoid : Activation::Silu;
  emit(net, StepOp::Glu, {gate, out}, {out}, {}, GluAttrs{static_cast<int32_t>(unit)});
  return term(net, Role::OProj, out, "attn_out");
}

// Kimi delta attention.
Result<Lowering::Term> Lowering::lower_channel_delta_net(const Module& net,
                                                         const ir::DeltaNetInfo& d, View in) {
  static constexpr struct {
    Role role;
    const char *value, *conv;
  } kParts[] = {{Role::QProj, "delta_q", "conv_q"},
                {Role::KProj, "delta_k", "conv_k"},
                {Role::VProj, "delta_v", "conv_v"}};
  const View qkv = value("delta_qkv", d.channels());
  for (int64_t i = 0; const auto& part : kParts) {
    const View mixed = KTX_TRY(linear(net, part.role, in, part.value));
    const BlobId conv = KTX_TRY(blob(net, part.conv));
    emit(net, StepOp::CausalConv, {mixed}, {{qkv.value, i++ * d.width(), d.width()}}, {conv},
         CausalConvAttrs{states_++, static_cast<int32_t>(d.width()), d.taps});
  }
  const Module& forget = *KTX_TRY(child(net, Role::DeltaForget));
  View a, gate;
  if (modules_.child(forget, Role::DeltaAProj)) {
    a = KTX_TRY(linear(forget, Role::DeltaAProj, in, "delta_a"));
  } else {
    const View rates = KTX_TRY(linear(forget, Role::DeltaForgetAProj, in, "delta_forget"));
    a = KTX_TRY(linear(forget, Role::DeltaForgetBProj, rates, "delta_a"));
  }
  const View b = KTX_TRY(linear(net, Role::DeltaBProj, in, "delta_b"));
  if (modules_.child(net, Role::DeltaGateProj)) {
    gate = KTX_TRY(linear(net, Role::DeltaGateProj, in, "delta_gate"));
  } else {
    const View open = KTX_TRY(linear(net, Role::DeltaGateAProj, in, "delta_open"));
    gate = KTX_TRY(linear(net, Role::DeltaGateBProj, open, "delta_gate"));
  }
  const View out = value("delta", d.width());
  const BlobId decay = KTX_TRY(blob(net, "decay"));
  const BlobId dt_bias = KTX_TRY(blob(net, "dt_bias"));
  emit(
      net, StepOp::DeltaRule, {qkv, b, a}, {out}, {decay, dt_bias},
      DeltaRuleAttrs{states_++, d.key_heads, d.value_heads, d.head_dim, d.tiled, 1, d.lower_bound});
  KTX_TRY(norm(*KTX_TRY(child(net, Role::DeltaNorm)), out, out));
  emit(net, StepOp::Glu, {gate, out}, {out}, {},
       GluAttrs{static_cast<int32_t>(Activation::Sigmoid)});
  return term(net, Role::OProj, out, "attn_out");
}

}  // namespace ktx::passes

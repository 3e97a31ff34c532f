// Gated short convolutions (LFM2), lowered: a product, a causal convolution with a state of a fixed
// size, a product.
#include "lib/passes/lower/lowering.h"

namespace ktx::passes {

using ir::Module;
using ir::Role;
using program::BlobId;
using program::View;

Result<Lowering::Term> Lowering::lower_short_conv(const Module& conv, View in) {
  const ir::ShortConvInfo* c = KTX_TRY(info_of<ir::ShortConvInfo>(conv));
  const View projected = KTX_TRY(linear(conv, Role::ShortConvProj, in, "conv_in"));
  const View before{projected.value, 0, c->width};
  const View behind{projected.value, c->width, c->width};
  const View input{projected.value, 2 * c->width, c->width};
  const GluAttrs product{static_cast<int32_t>(Activation::Product)};
  const View gated = value("conv_x", c->width);
  emit(conv, StepOp::Glu, {before, input}, {gated}, {}, product);
  const View out = value("conv", c->width);
  const BlobId weight = KTX_TRY(blob(conv, "conv"));
  emit(conv, StepOp::CausalConv, {gated}, {out}, {weight},
       CausalConvAttrs{states_++, static_cast<int32_t>(c->width), c->taps, 1});
  emit(conv, StepOp::Glu, {behind, out}, {out}, {}, product);
  return term(conv, Role::OProj, out, "conv_out");
}

}  // namespace ktx::passes

// AltUp and LAuReL, lowered: the residual stream is several rows side by side, of which a layer
// computes one (AltUpWeightsAttrs):
//
//   s = mix_streams(s, predict(s[active]))    x = s[active]    n = rms_norm(x)
//   x = (x + attention(n) + n + laurel(n)) / sqrt(2)           x = x + mlp(x)
//   s = mix_streams(s, x, correct(x))         s[1..] += what the layer's input gives for s[active]
#include <fmt/format.h>

#include <numbers>

#include "lib/passes/lower/lowering.h"

namespace ktx::passes {

using ir::Module;
using ir::Param;
using ir::Role;
using program::BlobId;
using program::kAbsent;
using program::View;

namespace {

// The least mean square of what an embedding's projection gives, as in the models' code.
constexpr float kLeastSquare = 1e-5F;

View part_of(View streams, int64_t i, int64_t width) {
  return {streams.value, streams.offset + i * width, width};
}

}  // namespace

// The first stream is the embedding, the others are projections of it that are as large.
Status Lowering::project_streams(const Module& projections) {
  const int64_t hidden = modules_.facts.hidden;
  const int64_t others = KTX_TRY(info_of<ir::LinearInfo>(projections))->out / hidden;
  const View one = x_;
  x_ = value("streams", (others + 1) * hidden);
  emit(projections, StepOp::Scale, {one}, {part_of(x_, 0, hidden)}, {}, ScaleAttrs{1});
  const BlobId all = KTX_TRY(blob(projections, "streams", 1));
  emit(projections, StepOp::Matmul, {one, View{}}, {{x_.value, hidden, others * hidden}},
       {all, kAbsent}, MatmulAttrs{});
  for (int64_t i = 1; i <= others; ++i) {
    const View stream = part_of(x_, i, hidden);
    emit(projections, StepOp::MatchRms, {stream, one}, {stream}, {}, MatchRmsAttrs{kLeastSquare});
  }
  return {};
}

// Their mean, behind a projection of each but the first, to the size of the first.
Result<View> Lowering::join_streams(const Module& projections, View streams) {
  const int64_t hidden = modules_.facts.hidden;
  const int64_t count = streams.width / hidden;
  const View first = part_of(streams, 0, hidden);
  const View mean = value("last", hidden, ValueType::F32, RowKind::Output);
  emit(projections, StepOp::Scale, {first}, {mean}, {}, ScaleAttrs{1});
  const Param* all = projections.param("streams");
  if (!all || all->sources.size() != 1 || all->sources[0].row_count != -1) {
    return Error{fmt::format("'{}' has no matrix for each stream", projections.path)};
  }
  for (int64_t i = 1; i < count; ++i) {
    Param own = *all;
    own.matrices = 1;
    own.sources = {{all->sources[0].tensor, (i - 1) * hidden, hidden}};
    const BlobId weights = KTX_TRY(blob(projections, &own));
    const View out =
        value(fmt::format("last_stream{}", i), hidden, ValueType::F32, RowKind::Output);
    emit(projections, StepOp::Matmul, {part_of(streams, i, hidden), View{}}, {out},
         {weights, kAbsent}, MatmulAttrs{});
    emit(projections, StepOp::MatchRms, {out, first}, {out}, {}, MatchRmsAttrs{kLeastSquare});
    add({&projections, out}, mean);
  }
  scale_by(projections, mean, 1 / static_cast<float>(count));
  return mean;
}

// The streams x_ become what AltUp makes of them by `read`: what they probably are before the
// layer, or by what the layer has given.
Status Lowering::mix_by_altup(const Module& altup, View streams, View read, bool corrects) {
  const ir::AltUpInfo* info = KTX_TRY(info_of<ir::AltUpInfo>(altup));
  const std::string base = corrects ? "correct" : "predict";
  const View normed = value(base + "_norm", info->hidden);
  KTX_TRY(norm(*KTX_TRY(child(altup, Role::AltUpRouterNorm)), read, normed));
  const View kinds = KTX_TRY(linear(altup, Role::AltUpRouter, normed, (base + "_kinds").c_str()));
  emit(altup, StepOp::Activate, {kinds}, {kinds}, {},
       ActivateAttrs{static_cast<int32_t>(UnitFunction::Tanh)});
  const Role role = corrects ? Role::AltUpCorrectProj : Role::AltUpPredictProj;
  const View coefs = KTX_TRY(linear(altup, role, kinds, (base + "_coefs").c_str()));
  const AltUpWeightsAttrs attrs{info->streams, info->active, corrects};
  const View weights = value(base + "_weights", attrs.width());
  emit(altup, StepOp::AltUpWeights, {coefs}, {weights}, {}, attrs);
  // (Predictions have no part.)
  emit(altup, StepOp::MixStreams, {streams, corrects ? read : normed, weights}, {streams}, {},
       NoAttrs{});
  return {};
}

// What attention read, and a product of low rank, go to the stream as well.
Status Lowering::add_laurel(const Module& layer, View in) {
  const Module* laurel = modules_.child(layer, Role::Laurel);
  if (!laurel) return {};
  const View down = KTX_TRY(linear(*laurel, Role::LaurelDownProj, in, "laurel_down"));
  const View up = KTX_TRY(linear(*laurel, Role::LaurelUpProj, down, "laurel"));
  KTX_TRY(norm(*KTX_TRY(child(*laurel, Role::LaurelNorm)), up, up));
  add({laurel, up}, x_);
  add({laurel, in}, x_);
  scale_by(*laurel, x_, static_cast<float>(1 / std::numbers::sqrt2));
  return {};
}

Status Lowering::predict_streams(const Module& layer) {
  const Module* altup = modules_.child(layer, Role::AltUp);
  if (!altup) return {};
  const ir::AltUpInfo* info = KTX_TRY(info_of<ir::AltUpInfo>(*altup));
  streams_ = x_;
  const View active = part_of(streams_, info->active, info->hidden);
  KTX_TRY(mix_by_altup(*altup, streams_, active, false));
  x_ = value("active", info->hidden);
  emit(*altup, StepOp::Scale, {active}, {x_}, {}, ScaleAttrs{1});
  return {};
}

// The layer's own part of the token embedding is gated by the active stream, and goes to all but
// the first.
Status Lowering::correct_streams(const Module& layer) {
  const Module* altup = modules_.child(layer, Role::AltUp);
  if (!altup) return {};
  const ir::AltUpInfo* info = KTX_TRY(info_of<ir::AltUpInfo>(*altup));
  KTX_TRY(mix_by_altup(*altup, streams_, x_, true));
  x_ = streams_;
  if (!modules_.child(layer, Role::LayerInputGate)) return {};
  const View scaled = value("active_scaled", info->hidden);
  const BlobId scale = KTX_TRY(blob(*altup, "output_scale"));
  emit(*altup, StepOp::EmbedRow, {}, {scaled}, {scale}, EmbedRowAttrs{0});
  emit(*altup, StepOp::Glu, {scaled, part_of(x_, info->active, info->hidden)}, {scaled}, {},
       GluAttrs{static_cast<int32_t>(Activation::Product)});
  const Term out = KTX_TRY(layer_input(layer, scaled));
  const Module& post = *KTX_TRY(child(layer, Role::LayerInputPostNorm));
  KTX_TRY(norm(post, out.view, out.view));
  // Beside the streams, so that the sums are made there.
  const View given = value("input_given", info->hidden);
  emit(*altup, StepOp::Scale, {out.view}, {given}, {}, ScaleAttrs{1});
  for (int64_t i = 1; i < info->streams; ++i) {
    add({altup, given}, part_of(x_, i, info->hidden));
  }
  return {};
}

}  // namespace ktx::passes

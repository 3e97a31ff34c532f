// Images. In a tower, patches come with the pass and become rows of a language model. In that
// model, the rows of an image replace the embeddings of its tokens.
//
//   given = [patch]                            x = matmul(given) + position
//   ... layers ...                             n = norm(x)           p = pool_rows(n)
//   r = rms_norm(p)                            rows = r . projection
//
// or, where squares are unfolded, rows = second(gelu(first(merge(p)))).
#include <fmt/format.h>

#include "lib/passes/lower/lowering.h"

namespace ktx::passes {

using ir::Module;
using ir::Role;
using program::BlobId;
using program::View;

// Patches to the stream.
Status Lowering::lower_patches(const Module& patches) {
  const int64_t width = KTX_TRY(info_of<ir::LinearInfo>(patches))->in;
  const View given = value("given", width);
  emit_on("cpu", patches, StepOp::GivenHidden, {}, {given}, {}, NoAttrs{});
  return matmul(patches, given, x_);
}

// The stream to rows of the language model.
Status Lowering::lower_image_rows(const Module& model, const Module& projector) {
  const View normed = value("image", x_.width);
  const Module* own = modules_.child(projector, Role::ImageInputNorm);
  KTX_TRY(norm(own ? *own : *KTX_TRY(child(model, Role::FinalNorm)), x_, normed));
  const ir::PoolInfo* pool = KTX_TRY(info_of<ir::PoolInfo>(projector));
  const PoolRowsAttrs attrs{pool->side, pool->unfold};
  const View last = output_rows("last", x_.width * (pool->unfold ? attrs.patches() : 1));
  emit(projector, StepOp::PoolRows, {normed}, {last}, {}, attrs);
  if (pool->unfold) return lower_merged_rows(projector, last);
  KTX_TRY(optional_norm(projector, Role::ImageNorm, last));
  const Module& product = *KTX_TRY(child(projector, Role::ImageProj));
  const ir::LinearInfo* linear = KTX_TRY(info_of<ir::LinearInfo>(product));
  const View rows = output_rows("image_rows", linear->out);
  const BlobId weight = KTX_TRY(blob(product, "transposed"));
  emit(product, StepOp::MatmulHeads, {last, View{}}, {rows}, {weight},
       MatmulHeadsAttrs{.heads = 1,
                        .transposed = 1,
                        .row_begin = 0,
                        .row_count = static_cast<int32_t>(linear->in),
                        .x_stride = static_cast<int32_t>(linear->in),
                        .y_stride = static_cast<int32_t>(linear->out)});
  return {};
}

// `squares`: all elements of each square of patches.
Status Lowering::lower_merged_rows(const Module& projector, View squares) {
  const Module& merge =
      *KTX_TRY(child(*KTX_TRY(child(projector, Role::ImageMerger)), Role::ImageMergeProj));
  const View merged = output_rows("merged", x_.width);
  KTX_TRY(matmul(merge, squares, merged));
  const Module& first = *KTX_TRY(child(projector, Role::ImageFirstProj));
  const int64_t width = KTX_TRY(info_of<ir::LinearInfo>(first))->out;
  const View wide = output_rows("image_wide", width);
  KTX_TRY(matmul(first, merged, wide));
  emit(first, StepOp::Activate, {wide}, {wide}, {},
       ActivateAttrs{static_cast<int32_t>(UnitFunction::GeluErf)});
  return matmul(*KTX_TRY(child(projector, Role::ImageSecondProj)), wide,
                output_rows("image_rows", width));
}

// What stands for an image has no embedding of its own.
void Lowering::put_image_rows(const Module& embedding) {
  if (takes_images_) emit(embedding, StepOp::GivenRows, {x_}, {x_}, {}, NoAttrs{});
}

}  // namespace ktx::passes

// Images. Of a tower: patches come with the pass, and become rows of a language model. Of that
// model: the rows of an image take the place of its tokens' embeddings.
//
//   given = [patch]                            x = matmul(given) + position
//   ... layers ...                             n = layer_norm(x)     p = pool_rows(n)
//   r = rms_norm(p)                            rows = r . projection
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
  KTX_TRY(norm(*KTX_TRY(child(model, Role::FinalNorm)), x_, normed));
  const ir::PoolInfo* pool = KTX_TRY(info_of<ir::PoolInfo>(projector));
  const View last = value("last", x_.width, ValueType::F32, RowKind::Output);
  emit(projector, StepOp::PoolRows, {normed}, {last}, {}, PoolRowsAttrs{pool->columns, pool->side});
  KTX_TRY(optional_norm(projector, Role::ImageNorm, last));
  const Module& product = *KTX_TRY(child(projector, Role::ImageProj));
  const ir::LinearInfo* linear = KTX_TRY(info_of<ir::LinearInfo>(product));
  const View rows = value("image_rows", linear->out, ValueType::F32, RowKind::Output);
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

// What stands for an image has no embedding of its own.
void Lowering::put_image_rows(const Module& embedding) {
  if (takes_images_) emit(embedding, StepOp::GivenRows, {x_}, {x_}, {}, NoAttrs{});
}

}  // namespace ktx::passes

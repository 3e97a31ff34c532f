// Images. In a tower, patches come with the pass and become rows of a language model. In that
// model, the rows of an image replace the embeddings of its tokens.
//
//   given = [patch]                            x = matmul(given) + position
//   ... layers ...                             n = norm(x)           p = pool_rows(n)
//   r = rms_norm(p)                            rows = r . projection
//
// or, where squares are unfolded, rows = second(gelu(first(merge(p)))) or second(gelu(first(p))).
//
// Rows may have more parts, which layers of the tower give and which are added behind the first
// layers of the language model:
//
//   rows = [second(gelu(first(p))) ; of the first such layer ; of the next one ; ...]
#include <fmt/format.h>

#include <algorithm>

#include "lib/passes/lower/lowering.h"

namespace ktx::passes {

using ir::Module;
using ir::Role;
using program::BlobId;
using program::View;

// Patches to the stream. A convolution over two frames of a video has a kernel for each, and an
// image is both.
Status Lowering::lower_patches(const Module& patches) {
  const int64_t width = KTX_TRY(info_of<ir::LinearInfo>(patches))->in;
  const View given = value("given", width);
  emit(patches, StepOp::GivenHidden, {}, {given}, {}, NoAttrs{});
  KTX_TRY(matmul(patches, given, x_));
  if (!patches.param("second_frame")) return {};
  const View second = value("second_frame", x_.width);
  const BlobId weight = KTX_TRY(blob(patches, "second_frame"));
  emit(patches, StepOp::Matmul, {given, View{}}, {second}, {weight, program::kAbsent},
       MatmulAttrs{});
  add({&patches, second}, x_);
  return {};
}

// A learned row for each place of a grid that any image is laid on.
Status Lowering::add_places(const Module& model) {
  const Module* table = modules_.child(model, Role::GridEmbedding);
  if (!table) return {};
  const int64_t rows = KTX_TRY(info_of<ir::EmbeddingInfo>(*table))->vocab;
  int32_t side = 1;
  while (int64_t{side} * side < rows) ++side;
  const View places = value("places", x_.width);
  const BlobId weight = KTX_TRY(blob(*table, "weight"));
  emit(*table, StepOp::EmbedGrid, {}, {places}, {weight}, EmbedGridAttrs{side});
  add({table, places}, x_);
  return {};
}

// One row of each square of patches.
View Lowering::squares_of(const Module& pooling, View patches, const char* value_name) {
  const auto& pool = std::get<ir::PoolInfo>(pooling.info);
  const PoolRowsAttrs attrs{pool.side, pool.unfold};
  const bool unfolds = attrs.unfold != static_cast<int32_t>(Unfold::None);
  const View squares = output_rows(value_name, patches.width * (unfolds ? attrs.patches() : 1));
  emit(pooling, StepOp::PoolRows, {patches}, {squares}, {}, attrs);
  return squares;
}

// The stream to rows of the language model.
Status Lowering::lower_image_rows(const Module& model, const Module& projector) {
  const View normed = value("image", x_.width);
  const Module* own = modules_.child(projector, Role::ImageInputNorm);
  KTX_TRY(norm(own ? *own : *KTX_TRY(child(model, Role::FinalNorm)), x_, normed));
  const View last = squares_of(projector, normed, "last");
  if (modules_.child(projector, Role::ImageFirstProj)) return lower_merged_rows(projector, last);
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
  View merged = squares;
  if (const Module* merger = modules_.child(projector, Role::ImageMerger)) {
    merged = output_rows("merged", x_.width);
    KTX_TRY(matmul(*KTX_TRY(child(*merger, Role::ImageMergeProj)), squares, merged));
  }
  const Module& second = *KTX_TRY(child(projector, Role::ImageSecondProj));
  return two_linears(projector, merged, KTX_TRY(image_rows_part(second, 0)));
}

Status Lowering::two_linears(const Module& parent, View in, View out) {
  const Module& first = *KTX_TRY(child(parent, Role::ImageFirstProj));
  const View wide = output_rows("image_wide", KTX_TRY(info_of<ir::LinearInfo>(first))->out);
  KTX_TRY(matmul(first, in, wide));
  emit(first, StepOp::Activate, {wide}, {wide}, {},
       ActivateAttrs{static_cast<int32_t>(UnitFunction::GeluErf)});
  return matmul(*KTX_TRY(child(parent, Role::ImageSecondProj)), wide, out);
}

// Where `second` writes that part of the rows.
Result<View> Lowering::image_rows_part(const Module& second, int64_t part) {
  const int64_t width = KTX_TRY(info_of<ir::LinearInfo>(second))->out;
  if (image_rows_.value == program::kAbsent) {
    const auto more = std::ranges::count(modules_.modules, Role::ImagePart, &Module::role);
    image_rows_ = output_rows("image_rows", width * (1 + more));
  }
  return View{image_rows_.value, part * width, width};
}

// The part of the rows that a layer of a tower gives.
Status Lowering::lower_image_part(const Module& part) {
  const View squares = squares_of(part, x_, "squares");
  KTX_TRY(norm(*KTX_TRY(child(part, Role::ImagePartNorm)), squares, squares));
  const Module& second = *KTX_TRY(child(part, Role::ImageSecondProj));
  return two_linears(part, squares, KTX_TRY(image_rows_part(second, ++image_parts_done_)));
}

// What stands for an image has no embedding of its own. Its further parts are added behind layers.
void Lowering::put_image_rows(const Module& module, int32_t part) {
  if (part < image_parts_) emit(module, StepOp::GivenRows, {x_}, {x_}, {}, GivenRowsAttrs{part});
}

}  // namespace ktx::passes

// What n-grams of the last tokens add to all residual streams, lowered (NgramPartInfo has the
// formula):
//
//   e = embed_ngrams   k = norms(matmul(e))   v = matmul(e)   q = norms(x)
//   g = root(dot_streams(k, q))               v[s] = sigmoid_scale(v, g[s]) for each stream s
//   c = causal_conv(norms(v))                 x = x + v + c
#include <fmt/format.h>

#include <cmath>

#include "kernels/embed/ngram_rows.h"
#include "lib/passes/lower/lowering.h"

namespace ktx::passes {

using ir::Module;
using ir::Role;
using program::BlobId;
using program::View;

Status Lowering::add_ngrams(const Module& layer) {
  const Module* part = modules_.child(layer, Role::NgramPart);
  return part ? lower_ngrams(*part) : Status{};
}

// The rows of a token, one behind the other. The table is read where it is, a few rows a token.
Result<View> Lowering::look_up_ngrams(const Module& ngrams) {
  const ir::NgramsInfo* n = KTX_TRY(info_of<ir::NgramsInfo>(ngrams));
  const Module& table = *KTX_TRY(child(ngrams, Role::NgramTable));
  const View rows = value("ngrams", n->rows() * KTX_TRY(info_of<ir::EmbeddingInfo>(table))->hidden);
  std::vector<float> digits;
  for (const auto* numbers : {&n->multipliers, &n->sizes, &n->offsets}) {
    for (const uint64_t number : *numbers) kernels::append_ngram_digits(number, digits);
  }
  const std::string& device = table.decision.device;
  const BlobId weight = KTX_TRY(blob(table, "weight"));
  const BlobId hash = constant(fmt::format("{}.hash@{}", ngrams.path, device), digits, device);
  emit(table, StepOp::EmbedNgrams, {}, {rows}, {weight, hash},
       EmbedNgramsAttrs{states_++, n->size, n->heads, n->end});
  return rows;
}

Status Lowering::lower_ngrams(const Module& part) {
  const ir::NgramPartInfo* p = KTX_TRY(info_of<ir::NgramPartInfo>(part));
  const View rows = KTX_TRY(look_up_ngrams(*KTX_TRY(child(part, Role::Ngrams))));
  const View keys = KTX_TRY(linear(part, Role::NgramKeyProj, rows, "ngram_keys"));
  KTX_TRY(norm(*KTX_TRY(child(part, Role::NgramKeyNorm)), keys, keys));
  const View shared = KTX_TRY(linear(part, Role::NgramValueProj, rows, "ngram_value"));
  const View queries = value("ngram_queries", x_.width);
  KTX_TRY(norm(*KTX_TRY(child(part, Role::NgramQueryNorm)), x_, queries));
  const View gates = value("ngram_gates", p->streams);
  const auto factor = static_cast<float>(1 / std::sqrt(static_cast<double>(p->hidden)));
  emit(part, StepOp::DotStreams, {keys, queries}, {gates}, {}, ScaleAttrs{factor});
  emit(part, StepOp::Activate, {gates}, {gates}, {},
       ActivateAttrs{static_cast<int32_t>(UnitFunction::SignedRoot)});
  const View values = value("ngram_values", x_.width);
  for (int64_t s = 0; s < p->streams; ++s) {
    emit(part, StepOp::SigmoidScale, {shared, {gates.value, s, 1}},
         {{values.value, s * p->hidden, p->hidden}}, {}, NoAttrs{});
  }
  const View normed = value("ngram_normed", x_.width);
  KTX_TRY(norm(*KTX_TRY(child(part, Role::NgramConvNorm)), values, normed));
  const View mixed = value("ngram_mixed", x_.width);
  const BlobId conv = KTX_TRY(blob(part, "conv"));
  CausalConvAttrs attrs{states_++, static_cast<int32_t>(x_.width), p->taps};
  attrs.dilation = p->dilation;
  emit(part, StepOp::CausalConv, {normed}, {mixed}, {conv}, attrs);
  add({&part, values}, x_);
  add({&part, mixed}, x_);
  return {};
}

}  // namespace ktx::passes

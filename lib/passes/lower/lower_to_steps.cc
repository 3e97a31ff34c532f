// Turns the module graph into the step graph.
//
// One decoder layer with grouped-query attention and experts becomes
//
//   n = rms_norm(x)            q, k, v = matmul(n)      [q, k = rms_norm per head]
//   rope(q) rope(k)            kv_store(k, v)           a = attention(q)
//   o = matmul(a)              x = add(x, o)            n = rms_norm(x)
//   s = matmul(n)  (router)    ids, weights = router(s) order = group_experts
//   h = experts_gate_up(n)     e = experts_down(h)      x = add(x, e)
//
// Layers that read the keys and values of another layer have no k, v and kv_store.
//
// Where a family has norms behind attention or the feed-forward part (post-norms), they come
// between the product and the addition.
//
// fold-residuals lets products add to x themselves later. From here on passes add only what their
// name says; each step names the module it came from.
//
// Attention, latent attention, delta nets, state spaces and experts have files of their own
// (lowering.h).
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "lib/passes/lower/lowering.h"
#include "lib/support/normal_quantile.h"
#include "lib/target/host_device.h"

namespace ktx::passes {

using ir::Module;
using ir::Role;
using program::BlobId;
using program::View;

Status Lowering::run() {
  const Module& root = modules_.root();
  const Module* model = KTX_TRY(child(root, Role::Model));
  const Module* patches = modules_.child(*model, Role::PatchEmbedding);
  const Module* embedding = patches ? patches : KTX_TRY(child(*model, Role::Embedding));
  const Module* layers = KTX_TRY(child(*model, Role::LayerList));
  rotary_ = modules_.child(*model, patches ? Role::GridRotary : Role::Rotary);
  local_rotary_ = modules_.child(*model, Role::LocalRotary);

  x_ = value("x", modules_.facts.hidden);
  KTX_TRY(patches ? lower_patches(*patches) : lower_embedding(*embedding));
  KTX_TRY(add_embedding_row(*model, Role::PositionEmbedding, -1, "positions"));
  KTX_TRY(add_places(*model));
  KTX_TRY(add_embedding_row(*model, Role::TypeEmbedding, 0, "type"));
  KTX_TRY(optional_norm(*model, Role::EmbeddingNorm, x_));
  KTX_TRY(optional_norm(*embedding, Role::EmbeddingNorm, x_));
  KTX_TRY(lower_layer_inputs(*model));
  KTX_TRY(lower_prediction_input(*layers));
  KTX_TRY(spread_streams(*model));
  if (layers->children.empty()) return Error{"the model has no layers"};
  KTX_TRY(lower_head_input(*model, modules_.modules[layers->children.front()]));
  for (ir::ModuleId id : layers->children) KTX_TRY(lower_layer(modules_.modules[id]));
  return lower_outputs(root, *model, modules_.modules[layers->children.back()]);
}

Status Lowering::lower_embedding(const Module& embedding) {
  const BlobId table = KTX_TRY(blob(embedding, "weight"));
  emit(embedding, StepOp::Embed, {}, {x_}, {table}, NoAttrs{});
  const float scale = KTX_TRY(info_of<ir::EmbeddingInfo>(embedding))->scale;
  if (scale != 1) scale_by(embedding, x_, scale);
  put_image_rows(embedding, 0);
  return {};
}

// The wanted rows become logits, scores of texts, or stay what they are.
Status Lowering::lower_outputs(const Module& root, const Module& model, const Module& last_layer) {
  if (const Module* projector = modules_.child(root, Role::ImageProjector)) {
    return lower_image_rows(model, *projector);
  }
  const Module* final_norm = modules_.child(model, Role::FinalNorm);
  const Module& reader = final_norm ? *final_norm : last_layer;
  // The wanted rows alone cross to another host.
  const bool near = target::on_same_host(reader.decision.device, last_layer.decision.device);
  const std::string device = near ? reader.decision.device : last_layer.decision.device;
  keep_stream(modules_.facts.layers, reader, device);
  View states = x_;
  const auto normed = std::ranges::find(taps_, kBehindFinalNorm);
  const bool keep_normed = normed != taps_.end() && final_norm;
  if (keep_normed) {
    states = value(tap_value(static_cast<size_t>(normed - taps_.begin())), modules_.facts.hidden);
    KTX_TRY(norm(*final_norm, x_, states));
  }
  const Module* streams = modules_.child(model, Role::HeadStreams);
  const Module* projections = modules_.child(model, Role::AltUpUnembedProj);
  View last;
  if (const Module* sources = modules_.child(model, Role::HeadSources)) {
    last = KTX_TRY(attend_outputs(*sources, reader, device));
  } else {
    last = value(streams || projections ? "last_rows" : "last", states.width, ValueType::F32,
                 RowKind::Output);
    emit_on(device, reader, StepOp::GatherRows, {states}, {last}, {}, NoAttrs{});
  }
  if (streams) last = KTX_TRY(collapse_streams(*streams, last, "last"));
  if (projections) last = KTX_TRY(join_streams(*projections, last));
  if (final_norm && !keep_normed) KTX_TRY(norm(*final_norm, last, last));
  if (modules_.child(root, Role::ScoreHead)) return lower_scores(root, last);
  if (modules_.facts.encoder) return lower_text_dense(root, last);
  const Module* head = KTX_TRY(child(root, Role::Head));
  const View logits = value("logits", modules_.facts.logits(), ValueType::F32, RowKind::Output);
  KTX_TRY(matmul(*head, last, logits));
  const float cap = modules_.facts.logit_softcap;
  if (modules_.facts.logit_scale != 1) scale_by(*head, logits, modules_.facts.logit_scale);
  if (cap > 0) emit(*head, StepOp::Softcap, {logits}, {logits}, {}, SoftcapAttrs{cap});
  return {};
}

// The linears behind the pooling of a text's states, which come before it here: both are linear.
Status Lowering::lower_text_dense(const Module& root, View last) {
  const Module* up = modules_.child(root, Role::TextUpProj);
  if (!up) return {};
  const int64_t width = KTX_TRY(info_of<ir::LinearInfo>(*up))->out;
  const View wide = value("text_up", width, ValueType::F32, RowKind::Output);
  KTX_TRY(matmul(*up, last, wide));
  const View out = value("text", modules_.facts.hidden, ValueType::F32, RowKind::Output);
  return matmul(*KTX_TRY(child(root, Role::TextDownProj)), wide, out);
}

Status Lowering::lower_scores(const Module& root, View last) {
  View read = last;
  if (const Module* dense = modules_.child(root, Role::ScoreDense)) {
    read = value("score_dense", modules_.facts.hidden, ValueType::F32, RowKind::Output);
    KTX_TRY(matmul(*dense, last, read));
    emit(*dense, StepOp::Activate, {read}, {read}, {},
         ActivateAttrs{static_cast<int32_t>(UnitFunction::Tanh)});
  }
  const Module* head = KTX_TRY(child(root, Role::ScoreHead));
  const View scores = value("scores", modules_.facts.scores, ValueType::F32, RowKind::Output);
  return matmul(*head, read, scores);
}

// The row of each token's position, or one for all tokens, where the model has such a table.
Status Lowering::add_embedding_row(const Module& model, Role role, int32_t row,
                                   const char* value_name) {
  const Module* table = modules_.child(model, role);
  if (!table) return {};
  const View looked_up = value(value_name, modules_.facts.hidden);
  const BlobId weight = KTX_TRY(blob(*table, "weight"));
  emit(*table, StepOp::EmbedRow, {}, {looked_up}, {weight}, EmbedRowAttrs{row});
  add({table, looked_up}, x_);
  return {};
}

// For a prediction layer: the stream is made of the embedding and of the hidden states that come
// with the tokens, from the host (lib/families/prediction_rows.h).
Status Lowering::lower_prediction_input(const Module& layers) {
  if (layers.children.empty()) return {};
  const Module& layer = modules_.modules[layers.children.front()];
  const Module* projection = modules_.child(layer, Role::PredictionProj);
  if (!projection) return {};
  const Module& states = *KTX_TRY(child(layer, Role::PredictionHiddenNorm));
  const int64_t width = modules_.facts.hidden;
  const View given = value("given", width);
  emit_on("cpu", states, StepOp::GivenHidden, {}, {given}, {}, NoAttrs{});
  const View both = value("prediction_in", 2 * width);
  KTX_TRY(norm(*KTX_TRY(child(layer, Role::PredictionEmbeddingNorm)), x_, {both.value, 0, width}));
  KTX_TRY(norm(states, given, {both.value, width, width}));
  x_ = value("prediction", width);
  return matmul(*projection, both, x_);
}

// For a draft head: the stream is made of hidden states of its model, and its attention reads the
// embedding beside it. A token's row has the states of the model or, behind their place, what this
// head itself gave for the token before; the other part is zero.
//
//   given = [state a ; state b ; state c ; own]     x = fc . given[a, b, c] + own
Status Lowering::lower_head_input(const Module& model, const Module& layer) {
  const Module* projection = modules_.child(model, Role::GivenProj);
  if (!projection) return {};
  const int64_t width = modules_.facts.hidden;
  const int64_t states = KTX_TRY(info_of<ir::LinearInfo>(*projection))->in;
  const View embedding = x_;
  const View given = value("given", states + width);
  emit_on("cpu", *projection, StepOp::GivenHidden, {}, {given}, {}, NoAttrs{});
  View read = {given.value, 0, states};
  if (const Module* given_norm = modules_.child(model, Role::GivenNorm)) {
    read = value("given_norm", states);
    KTX_TRY(norm(*given_norm, {given.value, 0, states}, read));
  }
  x_ = value("stream", width);
  KTX_TRY(matmul(*projection, read, x_));
  add({projection, {given.value, states, width}}, x_);
  const View both = value("head_in", 2 * width);
  const Module& states_norm = *KTX_TRY(child(layer, Role::PredictionHiddenNorm));
  KTX_TRY(norm(*KTX_TRY(child(layer, Role::PredictionEmbeddingNorm)), embedding,
               {both.value, 0, width}));
  KTX_TRY(norm(states_norm, x_, {both.value, width, width}));
  if (modules_.facts.normed_stream) KTX_TRY(norm(states_norm, x_, x_));
  head_input_ = both;
  return {};
}

// Copies of the stream as it is, which `reader` reads on `device`, where it is tapped.
void Lowering::keep_stream(int32_t layer, const Module& reader, const std::string& device) {
  for (size_t tap = 0; tap < taps_.size(); ++tap) {
    if (taps_[tap] != layer) continue;
    emit_on(device, reader, StepOp::Scale, {x_}, {value(tap_value(tap), modules_.facts.hidden)}, {},
            ScaleAttrs{1});
  }
}

Result<Lowering::Term> Lowering::term(const Module& parent, Role role, View in,
                                      const char* value_name) {
  const Module* module = KTX_TRY(child(parent, role));
  const View out = value(value_name, modules_.facts.hidden);
  KTX_TRY(matmul(*module, in, out));
  return Term{module, out};
}

// What a part of the layer reads: what its norm makes of the stream, or the stream itself where
// there is none before the part.
Result<View> Lowering::part_input(const Module& layer, Role pre_norm, const char* value_name) {
  if (head_input_ && pre_norm == Role::AttentionNorm) return *head_input_;
  const bool mixer = pre_norm == Role::AttentionNorm;
  if (const Module* streams =
          modules_.child(layer, mixer ? Role::AttentionStreams : Role::MlpStreams)) {
    const View in = KTX_TRY(collapse_streams(*streams, x_, mixer ? "attn_in" : "mlp_in"));
    const Module* own = modules_.child(layer, pre_norm);
    if (!own) return in;
    const View normed = value(value_name, in.width);
    KTX_TRY(norm(*own, in, normed));
    return normed;
  }
  if (const Module* sources =
          modules_.child(layer, mixer ? Role::AttentionSources : Role::MlpSources)) {
    const View in = KTX_TRY(attend_streams(*sources, x_, earlier_, mixer ? "attn_in" : "mlp_in"));
    const View normed = value(value_name, in.width);
    KTX_TRY(norm(*KTX_TRY(child(layer, pre_norm)), in, normed));
    if (mixer && layer.layer % KTX_TRY(info_of<ir::SourcesInfo>(*sources))->block == 0) {
      earlier_.push_back(std::exchange(x_, View{}));
    }
    return normed;
  }
  if (!modules_.child(layer, pre_norm)) return x_;
  const View normed = value(value_name, modules_.facts.hidden);
  KTX_TRY(norm(*KTX_TRY(child(layer, pre_norm)), x_, normed));
  return normed;
}

// The sum of the terms: in the one that is on the device, if there is one.
View Lowering::sum_on(const std::string& device, const Terms& terms) {
  const auto there = std::ranges::find(terms, device, &Term::device);
  const Term& first = there == terms.end() ? terms[0] : *there;
  for (const Term& t : terms) {
    if (&t != &first) add(t, first.view);
  }
  return first.view;
}

// Each term by itself, or what a post-norm or a factor makes of their sum, which is made where the
// norm, or else the layer's stream, is; or their sum for all residual streams, where these are.
Status Lowering::add_to_stream(const Module& layer, Role post_norm, const Terms& terms) {
  if (const Module* streams =
          modules_.child(layer, post_norm == Role::AttentionPostNorm ? Role::AttentionStreams
                                                                     : Role::MlpStreams)) {
    mix_streams(*streams, sum_on(streams->decision.device, terms));
    return {};
  }
  const Module* post = modules_.child(layer, post_norm);
  const float scale = modules_.facts.residual_scale;
  if (post || scale != 1) {
    const Module& changed = post ? *post : layer;
    const View sum = sum_on(changed.decision.device, terms);
    if (post) KTX_TRY(norm(*post, sum, sum));
    if (scale != 1) scale_by(changed, sum, scale);
    add_to_last({&changed, sum});
    return {};
  }
  for (const Term& t : terms) add_to_last(t);
  return {};
}

Status Lowering::lower_layer(const Module& layer) {
  const Module* first = modules_.child(layer, Role::AttentionNorm);
  if (!first) first = &modules_.modules[layer.children.front()];
  keep_stream(layer.layer, *first, first->decision.device);
  layer_ = layer.layer;
  KTX_TRY(add_ngrams(layer));
  KTX_TRY(predict_streams(layer));
  keep_router_input(layer);
  View in;
  if (const Module* side = modules_.child(layer, Role::SideMlpNorm)) {
    in = value("mlp_norm", x_.width);
    KTX_TRY(norm(*side, x_, in));
  }
  if (mixes(layer)) {
    const View read = KTX_TRY(part_input(layer, Role::AttentionNorm, "attn_norm"));
    if (in.width == 0) in = read;
    const Terms mixed = KTX_TRY(lower_mixers(layer, read));
    KTX_TRY(add_to_stream(layer, Role::AttentionPostNorm, mixed));
    KTX_TRY(optional_norm(layer, Role::AttentionSumNorm, x_));
    KTX_TRY(add_laurel(layer, read));
  }
  if (feeds_forward(layer)) KTX_TRY(lower_feed_forward(layer, in));
  KTX_TRY(modules_.child(layer, Role::AltUp) ? correct_streams(layer) : add_layer_input(layer));
  const auto* info = std::get_if<ir::LayerInfo>(&layer.info);
  if (info && info->output_scale != 1) scale_by(layer, x_, info->output_scale);
  put_image_rows(layer, layer.layer + 1);
  if (const Module* part = modules_.child(layer, Role::ImagePart)) {
    KTX_TRY(lower_image_part(*part));
  }
  layer_ = -1;
  return {};
}

bool Lowering::mixes(const Module& layer) const {
  static constexpr Role kMixers[] = {Role::Attention,          Role::Mla,           Role::DeltaNet,
                                     Role::StateSpace,         Role::SelectiveScan, Role::ShortConv,
                                     Role::CompressedAttention};
  return std::ranges::any_of(kMixers, [&](Role role) { return modules_.child(layer, role); });
}

bool Lowering::feeds_forward(const Module& layer) const {
  static constexpr Role kParts[] = {Role::Mlp, Role::Moe, Role::RouterBlock};
  return std::ranges::any_of(kParts, [&](Role role) { return modules_.child(layer, role); });
}

// `in`: what attention read, or what a norm of its own makes of the same.
Status Lowering::lower_feed_forward(const Module& layer, View in) {
  const Module* moe = modules_.child(layer, Role::Moe);
  Terms terms;
  if (const Module* router = modules_.child(layer, Role::RouterBlock)) {
    terms.push_back(KTX_TRY(lower_experts_beside(layer, *router)));
  }
  // Where one norm stands before both parts, the feed-forward part reads what attention does.
  const bool beside =
      !modules_.child(layer, Role::MlpNorm) && !modules_.child(layer, Role::MlpPostNorm) &&
      !modules_.child(layer, Role::MlpSumNorm) && !modules_.child(layer, Role::MlpStreams);
  View mlp_in = in;
  if (!beside) {
    mlp_in = KTX_TRY(part_input(layer, Role::MlpNorm, "mlp_norm"));
  }
  for (const Term& t : KTX_TRY(moe ? lower_moe(layer, *moe, mlp_in) : lower_mlp(layer, mlp_in))) {
    terms.push_back(t);
  }
  KTX_TRY(add_to_stream(layer, Role::MlpPostNorm, terms));
  return optional_norm(layer, Role::MlpSumNorm, x_);
}

// A part of the token embedding for each layer: what the embedding gives and a projection of the
// stream, one row for all layers.
Status Lowering::lower_layer_inputs(const Module& model) {
  const Module* embedding = modules_.child(model, Role::LayerEmbedding);
  if (!embedding) return {};
  const ir::EmbeddingInfo* e = KTX_TRY(info_of<ir::EmbeddingInfo>(*embedding));
  const Module* norm_module = KTX_TRY(child(model, Role::LayerInputsNorm));
  layer_inputs_ = KTX_TRY(linear(model, Role::LayerInputsProj, x_, "layer_inputs"));
  KTX_TRY(norm(*norm_module, layer_inputs_, layer_inputs_));
  const View looked_up = value("layer_embedding", e->hidden);
  const BlobId table = KTX_TRY(blob(*embedding, "weight"));
  emit(*embedding, StepOp::Embed, {}, {looked_up}, {table}, NoAttrs{});
  if (e->scale != 1) scale_by(*embedding, looked_up, e->scale);
  add({norm_module, looked_up}, layer_inputs_);
  return {};
}

// What the layer's own part of that gives for `read`.
Result<Lowering::Term> Lowering::layer_input(const Module& layer, View read) {
  const Module& gate = *KTX_TRY(child(layer, Role::LayerInputGate));
  const int64_t width = KTX_TRY(info_of<ir::LinearInfo>(gate))->out;
  const View own{layer_inputs_.value, layer.layer * width, width};
  if (own.offset + width > layer_inputs_.width) {
    return Error{fmt::format("module '{}' has no part of the layers' inputs", gate.path)};
  }
  const View gated = KTX_TRY(linear(layer, Role::LayerInputGate, read, "input_gate"));
  const Module& mlp = *KTX_TRY(child(layer, Role::Mlp));  // whose activation it is
  const ir::MlpInfo* m = KTX_TRY(info_of<ir::MlpInfo>(mlp));
  emit(gate, StepOp::Glu, {gated, own}, {gated}, {}, m->glu);
  return term(layer, Role::LayerInputProj, gated, "input_out");
}

Status Lowering::add_layer_input(const Module& layer) {
  if (!modules_.child(layer, Role::LayerInputGate)) return {};
  const Term out = KTX_TRY(layer_input(layer, x_));
  return add_to_stream(layer, Role::LayerInputPostNorm, {out});
}

// What mixes tokens: attention of one kind or the other, a state, or a state beside attention.
Result<Lowering::Terms> Lowering::lower_mixers(const Module& layer, View in) {
  Terms terms;
  if (const Module* space = modules_.child(layer, Role::StateSpace)) {
    terms.push_back(KTX_TRY(lower_state_space(*space, in)));
  }
  if (const Module* scan = modules_.child(layer, Role::SelectiveScan)) {
    terms.push_back(KTX_TRY(lower_selective_scan(*scan, in)));
  }
  if (const Module* conv = modules_.child(layer, Role::ShortConv)) {
    terms.push_back(KTX_TRY(lower_short_conv(*conv, in)));
  }
  if (const Module* attention = modules_.child(layer, Role::Attention)) {
    terms.push_back(KTX_TRY(lower_attention(*attention, in)));
  } else if (const Module* net = modules_.child(layer, Role::DeltaNet)) {
    terms.push_back(KTX_TRY(lower_delta_net(*net, in)));
  } else if (const Module* compressed = modules_.child(layer, Role::CompressedAttention)) {
    terms.push_back(KTX_TRY(lower_compressed_attention(*compressed, in)));
  } else if (terms.empty()) {
    terms.push_back(KTX_TRY(lower_mla(*KTX_TRY(child(layer, Role::Mla)), in)));
  }
  return terms;
}

// act(gate(in)) * up(in) of a dense feed-forward part, or act(up(in)) of one without a gate. An
// activation that glu has not is a step of its own.
Result<View> Lowering::mlp_hidden(const Module& mlp, View in) {
  const ir::MlpInfo* m = KTX_TRY(info_of<ir::MlpInfo>(mlp));
  const std::string prefix = mlp.role == Role::SharedMlp ? "shared_" : "";
  const bool gated = modules_.child(mlp, Role::GateProj) || modules_.child(mlp, Role::GateUpProj);
  if (!gated) {
    const View inner = KTX_TRY(linear(mlp, Role::UpProj, in, (prefix + "up").c_str()));
    emit(mlp, StepOp::Activate, {inner}, {inner}, {}, m->activate());
    return inner;
  }
  const View gate = KTX_TRY(part_linear(mlp, Role::GateProj, Role::GateUpProj, 0, m->width, in,
                                        (prefix + "gate").c_str()));
  const View up = KTX_TRY(part_linear(mlp, Role::UpProj, Role::GateUpProj, m->width, m->width, in,
                                      (prefix + "up").c_str()));
  if (m->sparsity > 0) {
    const auto deviations = static_cast<float>(normal_quantile(m->sparsity));
    emit(mlp, StepOp::GaussianTopK, {gate}, {gate}, {}, GaussianTopKAttrs{deviations});
  }
  if (m->unit >= 0) emit(mlp, StepOp::Activate, {gate}, {gate}, {}, m->activate());
  emit(mlp, StepOp::Glu, {gate, up}, {up}, {}, m->glu);
  return up;
}

Result<Lowering::Terms> Lowering::lower_mlp(const Module& layer, View in) {
  const Module& mlp = *KTX_TRY(child(layer, Role::Mlp));
  const View up = KTX_TRY(mlp_hidden(mlp, in));
  KTX_TRY(optional_norm(mlp, Role::MlpInnerNorm, up));
  const Term out = KTX_TRY(term(mlp, Role::DownProj, up, "mlp_out"));
  KTX_TRY(optional_norm(layer, Role::DensePostNorm, out.view));
  return Terms{out};
}

Status lower_to_steps(CompileState& state) {
  state.program = {};
  return Lowering(state.modules, state.taps, state.image_parts, state.program).run();
}

std::string tap_value(size_t tap) {
  return fmt::format("hidden{}", tap);
}

}  // namespace ktx::passes

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
// fold-residuals lets products add to x themselves later. Multi-head latent attention runs in
// absorbed form: queries go through k_b into the latent space, attention reads [latent | rotary
// key] as one KV head whose value is the latent, and v_b brings the result back. From here on
// passes add only what their name says; each step names the module it came from.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <utility>

#include "lib/passes/deferred_experts.h"
#include "lib/passes/expert_groups.h"
#include "lib/passes/pass.h"
#include "lib/target/host_device.h"

namespace ktx::passes {
namespace {

using ir::Module;
using ir::Param;
using ir::Role;
using steps::BlobId;
using steps::kAbsent;
using steps::ValueId;
using steps::View;

class Lowering {
 public:
  Lowering(const ir::ModuleGraph& modules, bool keep_hidden, steps::StepGraph& graph)
      : modules_(modules), keep_hidden_(keep_hidden), graph_(graph) {}

  Status run() {
    const Module& root = modules_.root();
    const Module* model = KTX_TRY(child(root, Role::Model));
    const Module* embedding = KTX_TRY(child(*model, Role::Embedding));
    const Module* layers = KTX_TRY(child(*model, Role::LayerList));
    rotary_ = modules_.child(*model, Role::Rotary);
    local_rotary_ = modules_.child(*model, Role::LocalRotary);

    x_ = value("x", modules_.facts.hidden);
    const BlobId table = KTX_TRY(blob(*embedding, "weight"));
    emit(*embedding, StepOp::Embed, {}, {x_}, {table}, NoAttrs{});
    const float scale = KTX_TRY(info_of<ir::EmbeddingInfo>(*embedding))->scale;
    if (scale != 1) scale_by(*embedding, x_, scale);
    KTX_TRY(add_embedding_row(*model, Role::PositionEmbedding, -1, "positions"));
    KTX_TRY(add_embedding_row(*model, Role::TypeEmbedding, 0, "type"));
    KTX_TRY(optional_norm(*model, Role::EmbeddingNorm, x_));
    KTX_TRY(lower_layer_inputs(*model));
    KTX_TRY(lower_prediction_input(*layers));
    for (ir::ModuleId id : layers->children) KTX_TRY(lower_layer(modules_.modules[id]));
    if (layers->children.empty()) return Error{"the model has no layers"};
    return lower_outputs(root, *model, modules_.modules[layers->children.back()]);
  }

 private:
  // --- the end ---------------------------------------------------------------

  // The wanted rows become logits, scores of texts, or stay what they are.
  Status lower_outputs(const Module& root, const Module& model, const Module& last_layer) {
    const Module* final_norm = modules_.child(model, Role::FinalNorm);
    View states = x_;
    if (keep_hidden_ && final_norm) {
      states = value(kHiddenValue, modules_.facts.hidden);
      KTX_TRY(norm(*final_norm, x_, states));
    }
    const View last = value("last", modules_.facts.hidden, ValueType::F32, RowKind::Output);
    const Module& reader = final_norm ? *final_norm : last_layer;
    // The wanted rows alone cross to another host.
    const bool near = target::on_same_host(reader.decision.device, last_layer.decision.device);
    emit_on(near ? reader.decision.device : last_layer.decision.device, reader, StepOp::GatherRows,
            {states}, {last}, {}, NoAttrs{});
    if (final_norm && !keep_hidden_) KTX_TRY(norm(*final_norm, last, last));
    if (modules_.child(root, Role::ScoreHead)) return lower_scores(root, last);
    if (modules_.facts.encoder) return {};
    const Module* head = KTX_TRY(child(root, Role::Head));
    const View logits = value("logits", modules_.facts.vocab, ValueType::F32, RowKind::Output);
    KTX_TRY(matmul(*head, last, logits));
    const float cap = modules_.facts.logit_softcap;
    if (modules_.facts.logit_scale != 1) scale_by(*head, logits, modules_.facts.logit_scale);
    if (cap > 0) emit(*head, StepOp::Softcap, {logits}, {logits}, {}, SoftcapAttrs{cap});
    return {};
  }

  Status lower_scores(const Module& root, View last) {
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
  Status add_embedding_row(const Module& model, Role role, int32_t row, const char* value_name) {
    const Module* table = modules_.child(model, role);
    if (!table) return {};
    const View looked_up = value(value_name, modules_.facts.hidden);
    const BlobId weight = KTX_TRY(blob(*table, "weight"));
    emit(*table, StepOp::EmbedRow, {}, {looked_up}, {weight}, EmbedRowAttrs{row});
    add({table, looked_up}, x_);
    return {};
  }

  // Of a prediction layer: the stream is made of the embedding and of the hidden states that come
  // with the tokens, from the host (lib/families/prediction_rows.h).
  Status lower_prediction_input(const Module& layers) {
    if (layers.children.empty()) return {};
    const Module& layer = modules_.modules[layers.children.front()];
    const Module* projection = modules_.child(layer, Role::PredictionProj);
    if (!projection) return {};
    const Module& states = *KTX_TRY(child(layer, Role::PredictionHiddenNorm));
    const int64_t width = modules_.facts.hidden;
    const View given = value("given", width);
    emit_on("cpu", states, StepOp::GivenHidden, {}, {given}, {}, NoAttrs{});
    const View both = value("prediction_in", 2 * width);
    KTX_TRY(
        norm(*KTX_TRY(child(layer, Role::PredictionEmbeddingNorm)), x_, {both.value, 0, width}));
    KTX_TRY(norm(states, given, {both.value, width, width}));
    x_ = value("prediction", width);
    return matmul(*projection, both, x_);
  }

  // --- building blocks -----------------------------------------------------

  Result<const Module*> child(const Module& parent, Role role) const {
    const Module* found = modules_.child(parent, role);
    if (found) return found;
    return Error{fmt::format("module '{}' has no {}", parent.path, name(role))};
  }

  template <class T>
  Result<const T*> info_of(const Module& module) const {
    const T* found = std::get_if<T>(&module.info);
    if (found) return found;
    return Error{fmt::format("module '{}' lacks the attributes of its role {}", module.path,
                             name(module.role))};
  }

  // Layers reuse value names with their number in front; memory is shared later.
  View value(const std::string& base, int64_t width, ValueType type = ValueType::F32,
             RowKind rows = RowKind::Token, int32_t rows_per_row = 1) {
    const std::string unique = layer_ < 0 ? base : fmt::format("L{}.{}", layer_, base);
    graph_.values.push_back({unique, type, rows, rows_per_row, width, kAbsent});
    return graph_.whole(static_cast<ValueId>(graph_.values.size()) - 1);
  }

  void emit(const Module& module, StepOp op, std::vector<View> inputs, std::vector<View> outputs,
            std::vector<BlobId> weights, StepAttrs attrs) {
    emit_on(module.decision.device, module, op, std::move(inputs), std::move(outputs),
            std::move(weights), std::move(attrs));
  }
  void emit_on(const std::string& device, const Module& module, StepOp op, std::vector<View> inputs,
               std::vector<View> outputs, std::vector<BlobId> weights, StepAttrs attrs) {
    steps::Step step;
    step.op = op;
    step.module = module.path;
    step.layer = module.layer;
    step.device = device;
    step.inputs = std::move(inputs);
    step.outputs = std::move(outputs);
    step.weights = std::move(weights);
    step.attrs = std::move(attrs);
    graph_.steps.push_back(std::move(step));
  }

  // The blob of a parameter; one blob however many steps use it (tied embeddings,
  // an unsplit kv_b). Named after its tensors; `matrices` re-reads the rows as
  // that many matrices of equal size.
  Result<BlobId> blob(const Module& module, std::string_view param_name, int64_t matrices = 0) {
    const Param* param = module.param(param_name);
    if (!param) {
      return Error{fmt::format("module '{}' has no parameter '{}'", module.path, param_name)};
    }
    return blob(module, param, matrices);
  }
  Result<BlobId> blob(const Module& module, const Param* param, int64_t matrices = 0) {
    return blob_on(module.decision.device, module, param, matrices);
  }
  Result<BlobId> blob_on(const std::string& device, const Module& module, const Param* param,
                         int64_t matrices = 0) {
    const int64_t all_rows = param->rows * param->matrices;
    if (matrices == 0) matrices = param->matrices;
    if (all_rows % matrices != 0) {
      return Error{fmt::format("'{}' of '{}' has {} rows, no multiple of {} heads", param->name,
                               module.path, all_rows, matrices)};
    }
    std::string blob_name;
    for (const ir::TensorSlice& slice : param->sources) {
      blob_name += (blob_name.empty() ? "" : "+") + slice.tensor;
      if (slice.row_count >= 0) {
        blob_name += fmt::format("[{},{})", slice.first_row, slice.first_row + slice.row_count);
      }
      if (blob_name.size() > 200) {  // hundreds of unstacked experts: first ... last would do
        blob_name = fmt::format("{}.{}", module.path, param->name);
        break;
      }
    }
    blob_name += "@" + device;
    const auto [it, added] = blob_ids_.try_emplace(blob_name, graph_.blobs.size());
    if (added) {
      graph_.blobs.push_back({blob_name,
                              param->dtype,
                              Layout::Rows,
                              all_rows / matrices,
                              param->cols,
                              matrices,
                              param->sources,
                              {},
                              device});
    }
    return it->second;
  }

  Result<BlobId> optional_blob(const Module& module, std::string_view param_name) {
    if (!module.param(param_name)) return BlobId{kAbsent};
    return blob(module, param_name);
  }

  // Without the absent ones at the end, but for the first `least`.
  static std::vector<BlobId> present(std::vector<BlobId> blobs, size_t least) {
    while (blobs.size() > least && blobs.back() == kAbsent) blobs.pop_back();
    return blobs;
  }

  // Where the attention is: layers on several devices may share one rotary module.
  BlobId inv_freq_blob(const Module& module, const ir::RotaryInfo& rotary,
                       const std::string& device) {
    return constant(fmt::format("{}.inv_freq@{}", module.path, device), rotary.inv_freq, device);
  }
  BlobId constant(const std::string& blob_name, const std::vector<float>& values,
                  const std::string& device) {
    const auto [it, added] = blob_ids_.try_emplace(blob_name, graph_.blobs.size());
    if (added) {
      graph_.blobs.push_back({blob_name,
                              DType::F32,
                              Layout::Rows,
                              1,
                              static_cast<int64_t>(values.size()),
                              1,
                              {},
                              values,
                              device});
    }
    return it->second;
  }

  // The weights of norms that have none.
  BlobId ones_blob(int64_t width, const Module& module) {
    const std::string blob_name = fmt::format("ones.{}@{}", width, module.decision.device);
    const auto [it, added] = blob_ids_.try_emplace(blob_name, graph_.blobs.size());
    if (added) {
      graph_.blobs.push_back({blob_name,
                              DType::F32,
                              Layout::Rows,
                              1,
                              width,
                              1,
                              {},
                              std::vector<float>(static_cast<size_t>(width), 1.0f),
                              module.decision.device});
    }
    return it->second;
  }

  Status matmul(const Module& module, View in, View out) {
    const BlobId weight = KTX_TRY(blob(module, "weight"));
    const BlobId bias = KTX_TRY(optional_blob(module, "bias"));
    emit(module, StepOp::Matmul, {in, View{}}, {out}, {weight, bias}, MatmulAttrs{});
    return apply_factor(module, out);
  }
  // Of a linear's product (NVFP4).
  Status apply_factor(const Module& module, View out) {
    const auto* linear_info = std::get_if<ir::LinearInfo>(&module.info);
    if (linear_info == nullptr || linear_info->factor == 1) return {};
    if (module.param("bias")) {
      return Error{
          fmt::format("module '{}' has a factor and a bias, which is not known", module.path)};
    }
    scale_by(module, out, linear_info->factor);
    return {};
  }

  // The product into a new value of the linear's width.
  Result<View> linear(const Module& parent, Role role, View in, const char* value_name) {
    const Module* module = KTX_TRY(child(parent, role));
    const ir::LinearInfo* linear_info = KTX_TRY(info_of<ir::LinearInfo>(*module));
    const View out = value(value_name, linear_info->out);
    KTX_TRY(matmul(*module, in, out));
    return out;
  }

  // The same of the fused linear's rows [first, first + out.width) where the parent has one.
  Result<View> part_linear(const Module& parent, Role role, Role fused, int64_t first, int64_t rows,
                           View in, const char* value_name) {
    const Module* module = modules_.child(parent, fused);
    if (!module) return linear(parent, role, in, value_name);
    const View out = value(value_name, rows);
    const bool gate = role == Role::GateProj;
    if (role != Role::QProj && module->param(gate ? "gate" : "up")) {  // two tensors in the file
      const BlobId half = KTX_TRY(blob(*module, gate ? "gate" : "up"));
      emit(*module, StepOp::Matmul, {in, View{}}, {out}, {half, kAbsent}, MatmulAttrs{});
      return out;
    }
    const Param* weight = module->param("weight");
    if (!weight) return Error{fmt::format("module '{}' has no weight", module->path)};
    const Param part = KTX_TRY(rows_of(*module, *weight, first, rows));
    BlobId bias_blob = kAbsent;
    if (const Param* bias = module->param("bias")) {
      const Param bias_part = KTX_TRY(rows_of(*module, *bias, first, rows));
      bias_blob = KTX_TRY(blob(*module, &bias_part));
    }
    const BlobId weight_blob = KTX_TRY(blob(*module, &part));
    emit(*module, StepOp::Matmul, {in, View{}}, {out}, {weight_blob, bias_blob}, MatmulAttrs{});
    KTX_TRY(apply_factor(*module, out));
    return out;
  }
  // Some rows of a matrix, or elements of a vector, whose slices count in parts of equal size.
  static Result<Param> rows_of(const Module& module, const Param& whole, int64_t first,
                               int64_t rows) {
    const bool vector = whole.rows == 1;
    const int64_t all = vector ? whole.cols : whole.rows;
    if (whole.sources.size() != 1 || whole.sources[0].row_count != -1 || first + rows > all ||
        (vector && first % rows != 0)) {
      return Error{fmt::format("'{}' of '{}' cannot be cut into rows {} to {} of {}", whole.name,
                               module.path, first, first + rows, all)};
    }
    Param part = whole;
    part.sources = {{whole.sources[0].tensor, vector ? first / rows : first, vector ? 1 : rows}};
    (vector ? part.cols : part.rows) = rows;
    return part;
  }

  void scale_by(const Module& module, View view, float factor) {
    emit(module, StepOp::Scale, {view}, {view}, {}, ScaleAttrs{factor});
  }

  // Each group of the norm's width by itself: whole rows, or heads.
  Status norm(const Module& module, View in, View out) {
    const ir::NormInfo* norm_info = KTX_TRY(info_of<ir::NormInfo>(module));
    const BlobId weight = module.param("weight") ? KTX_TRY(blob(module, "weight"))
                                                 : ones_blob(norm_info->width, module);
    const auto groups = static_cast<int32_t>(in.width / std::max<int64_t>(norm_info->width, 1));
    if (norm_info->layer_norm) {
      const BlobId bias = KTX_TRY(optional_blob(module, "bias"));
      emit(module, StepOp::LayerNorm, {in}, {out}, {weight, bias},
           LayerNormAttrs{norm_info->eps, groups});
      if (norm_info->factor != 1) scale_by(module, out, norm_info->factor);
      return {};
    }
    emit(module, StepOp::RmsNorm, {in}, {out}, {weight}, RmsNormAttrs{norm_info->eps, groups});
    if (norm_info->factor != 1) scale_by(module, out, norm_info->factor);
    return {};
  }

  // In place, where the parent has such a norm.
  Status optional_norm(const Module& parent, Role role, View view) {
    const Module* module = modules_.child(parent, role);
    return module ? norm(*module, view, view) : Status{};
  }

  // --- layers ----------------------------------------------------------------

  // What the last product of a module gives to the residual stream, on the module's device or
  // another one.
  struct Term {
    Term(const Module* m, View v) : Term(m, v, m->decision.device) {}
    Term(const Module* m, View v, std::string d) : module(m), view(v), device(std::move(d)) {}
    const Module* module;
    View view;
    std::string device;
  };
  using Terms = std::vector<Term>;

  Result<Term> term(const Module& parent, Role role, View in, const char* value_name) {
    const Module* module = KTX_TRY(child(parent, role));
    const View out = value(value_name, modules_.facts.hidden);
    KTX_TRY(matmul(*module, in, out));
    return Term{module, out};
  }

  // What a part of the layer reads: what its norm makes of the stream, or the stream itself where
  // the norm stands behind the part, or behind its sum with the stream.
  Result<View> part_input(const Module& layer, Role pre_norm, Role post_norm, Role sum_norm,
                          const char* value_name) {
    const bool behind = modules_.child(layer, post_norm) || modules_.child(layer, sum_norm);
    if (!modules_.child(layer, pre_norm) && behind) return x_;
    const View normed = value(value_name, modules_.facts.hidden);
    KTX_TRY(norm(*KTX_TRY(child(layer, pre_norm)), x_, normed));
    return normed;
  }

  // Each term by itself, or what a post-norm or a factor makes of their sum.
  Status add_to_stream(const Module& layer, Role post_norm, const Terms& terms) {
    const Module* post = modules_.child(layer, post_norm);
    const float scale = modules_.facts.residual_scale;
    if (post || scale != 1) {
      const View sum = terms[0].view;
      for (size_t i = 1; i < terms.size(); ++i) add(terms[i], sum);
      if (post) KTX_TRY(norm(*post, sum, sum));
      if (scale != 1) scale_by(post ? *post : layer, sum, scale);
      add({post ? post : &layer, sum}, x_);
      return {};
    }
    for (const Term& t : terms) add(t, x_);
    return {};
  }

  void add(const Term& t, View sum) {
    emit_on(t.device, *t.module, StepOp::Add, {sum, t.view}, {sum}, {}, NoAttrs{});
  }

  Status lower_layer(const Module& layer) {
    layer_ = layer.layer;
    const View in = KTX_TRY(part_input(layer, Role::AttentionNorm, Role::AttentionPostNorm,
                                       Role::AttentionSumNorm, "attn_norm"));
    const Term attended = KTX_TRY(lower_mixer(layer, in));
    KTX_TRY(add_to_stream(layer, Role::AttentionPostNorm, {attended}));
    KTX_TRY(optional_norm(layer, Role::AttentionSumNorm, x_));
    const Module* moe = modules_.child(layer, Role::Moe);
    Terms terms;
    if (const Module* router = modules_.child(layer, Role::RouterBlock)) {
      terms.push_back(KTX_TRY(lower_experts_beside(layer, *router)));
    }
    // Where one norm stands before both parts, the feed-forward part reads what attention does.
    const bool beside = !modules_.child(layer, Role::MlpNorm) &&
                        !modules_.child(layer, Role::MlpPostNorm) &&
                        !modules_.child(layer, Role::MlpSumNorm);
    View mlp_in = in;
    if (!beside) {
      mlp_in = KTX_TRY(
          part_input(layer, Role::MlpNorm, Role::MlpPostNorm, Role::MlpSumNorm, "mlp_norm"));
    }
    for (const Term& t : KTX_TRY(moe ? lower_moe(layer, *moe, mlp_in) : lower_mlp(layer, mlp_in))) {
      terms.push_back(t);
    }
    KTX_TRY(add_to_stream(layer, Role::MlpPostNorm, terms));
    KTX_TRY(optional_norm(layer, Role::MlpSumNorm, x_));
    KTX_TRY(add_layer_input(layer));
    const auto* info = std::get_if<ir::LayerInfo>(&layer.info);
    if (info && info->output_scale != 1) scale_by(layer, x_, info->output_scale);
    layer_ = -1;
    return {};
  }

  // A part of the token embedding for each layer: what the embedding gives and a projection of the
  // stream, one row for all layers.
  Status lower_layer_inputs(const Module& model) {
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

  // What the layer's own part of that adds to the stream.
  Status add_layer_input(const Module& layer) {
    const Module* gate = modules_.child(layer, Role::LayerInputGate);
    if (!gate) return {};
    const int64_t width = KTX_TRY(info_of<ir::LinearInfo>(*gate))->out;
    const View own{layer_inputs_.value, layer.layer * width, width};
    if (own.offset + width > layer_inputs_.width) {
      return Error{fmt::format("module '{}' has no part of the layers' inputs", gate->path)};
    }
    const View gated = KTX_TRY(linear(layer, Role::LayerInputGate, x_, "input_gate"));
    const Module& mlp = *KTX_TRY(child(layer, Role::Mlp));  // whose activation it is
    const ir::MlpInfo* m = KTX_TRY(info_of<ir::MlpInfo>(mlp));
    emit(*gate, StepOp::Glu, {gated, own}, {gated}, {}, m->glu);
    const Term out = KTX_TRY(term(layer, Role::LayerInputProj, gated, "input_out"));
    return add_to_stream(layer, Role::LayerInputPostNorm, {out});
  }

  // What mixes tokens: attention of one kind or the other.
  Result<Term> lower_mixer(const Module& layer, View in) {
    if (const Module* attention = modules_.child(layer, Role::Attention)) {
      return lower_attention(*attention, in);
    }
    if (const Module* net = modules_.child(layer, Role::DeltaNet)) return lower_delta_net(*net, in);
    return lower_mla(*KTX_TRY(child(layer, Role::Mla)), in);
  }

  // The rotary module: the attention's own, or the model's, which may have one for windows.
  Result<const Module*> rotary_of(const Module& attention) const {
    if (const Module* own = modules_.child(attention, Role::Rotary)) return own;
    const auto* a = std::get_if<ir::AttentionInfo>(&attention.info);
    if (local_rotary_ && a && a->window > 0) return local_rotary_;
    if (rotary_) return rotary_;
    return Error{fmt::format("module '{}' has no rotary embedding", attention.path)};
  }

  // Rotates pairs of the rotary module's kind, unless `interleaved` names another.
  Status rope(const Module& attention, View in, View out, RopeAttrs attrs,
              std::optional<bool> interleaved = {}) {
    const Module* module = KTX_TRY(rotary_of(attention));
    const ir::RotaryInfo* rotary = KTX_TRY(info_of<ir::RotaryInfo>(*module));
    attrs.rotary_dim = rotary->rotary_dim;
    attrs.interleaved = interleaved.value_or(rotary->interleaved);
    attrs.mscale = rotary->mscale;
    const BlobId inv_freq = inv_freq_blob(*module, *rotary, attention.decision.device);
    emit(attention, StepOp::Rope, {in}, {out}, {inv_freq}, attrs);
    return {};
  }

  // Queries that grow with the position, which commutes with their rotation. In a value of its own:
  // a GPU's attention takes the rotation along where nothing else reads what it rotates.
  View grown(const Module& attention, View q, const PositionScaleAttrs& attrs,
             bool by_count = false) {
    if (attrs.growth == 0) return q;
    const View out = value("q_grown", q.width);
    emit(attention, by_count ? StepOp::CountScale : StepOp::PositionScale, {q}, {out}, {}, attrs);
    return out;
  }

  int32_t add_kv_slot(const Module& attention, int32_t kv_heads, int32_t key_dim, int32_t value_dim,
                      int32_t window = 0) {
    graph_.kv_slots.push_back(
        {attention.layer, kv_heads, key_dim, value_dim, attention.decision.device, window});
    return static_cast<int32_t>(graph_.kv_slots.size()) - 1;
  }

  Result<Term> lower_attention(const Module& attention, View in) {
    const ir::AttentionInfo* a = KTX_TRY(info_of<ir::AttentionInfo>(attention));
    const int64_t q_rows = int64_t{a->heads} * a->head_dim;
    const int64_t kv_rows = int64_t{a->kv_heads} * a->head_dim;
    const bool own_keys = a->keys_of_layer < 0;
    View q = a->gated
                 ? KTX_TRY(head_halves(attention, *a, 0, in, "q"))
                 : KTX_TRY(part_linear(attention, Role::QProj, Role::QkvProj, 0, q_rows, in, "q"));
    const View gate = a->gated ? KTX_TRY(head_halves(attention, *a, 1, in, "q_gate")) : View{};
    View k, v;
    if (own_keys) {
      k = KTX_TRY(part_linear(attention, Role::KProj, Role::QkvProj, q_rows, kv_rows, in, "k"));
    }
    if (own_keys && !a->keys_as_values) {
      v = KTX_TRY(
          part_linear(attention, Role::VProj, Role::QkvProj, q_rows + kv_rows, kv_rows, in, "v"));
    }
    KTX_TRY(optional_norm(attention, Role::QNorm, q));
    if (own_keys) KTX_TRY(norm_keys(attention, *a, k, v));
    q = grown(attention, q, a->grown, a->grown_by_count);
    if (a->rotated) {
      KTX_TRY(rope(attention, q, q,
                   {.heads = a->heads, .head_dim = a->head_dim, .y_head_dim = a->head_dim}));
    }
    if (a->rotated && own_keys) {
      KTX_TRY(rope(attention, k, k,
                   {.heads = a->kv_heads, .head_dim = a->head_dim, .y_head_dim = a->head_dim}));
    }
    KTX_TRY(optional_norm(attention, Role::QRotatedNorm, q));
    if (own_keys) {
      KTX_TRY(optional_norm(attention, Role::KRotatedNorm, k));
      kept_[attention.layer] = {k, v, {}};
    }
    const int32_t slot = KTX_TRY(slot_of(attention, *a));
    const View out = value("attn", int64_t{a->heads} * a->head_dim);
    const BlobId sinks = KTX_TRY(optional_blob(attention, "sinks"));
    const AttentionAttrs attrs{slot, a->heads, a->kv_heads, a->head_dim, a->head_dim,
                               0,    a->scale, a->window,   a->chunked,  a->softcap};
    if (a->whole_text) {
      emit(attention, StepOp::TextAttention, {q}, {out}, {}, attrs);
    } else {
      emit(attention, StepOp::Attention, {q}, {out}, {sinks}, attrs);
    }
    if (a->gated) {
      emit(attention, StepOp::Glu, {gate, out}, {out}, {},
           GluAttrs{static_cast<int32_t>(Activation::Sigmoid)});
    }
    return term(attention, Role::OProj, out, "attn_out");
  }

  // Of a layer with keys of its own. Values that are made of the key projection, too, come before
  // it is normed.
  Status norm_keys(const Module& attention, const ir::AttentionInfo& a, View& k, View& v) {
    if (!a.keys_as_values) {
      KTX_TRY(optional_norm(attention, Role::KNorm, k));
      return optional_norm(attention, Role::VNorm, v);
    }
    const View projected = k;
    k = value("k_normed", projected.width);
    v = value("v", projected.width);
    KTX_TRY(norm(*KTX_TRY(child(attention, Role::VNorm)), projected, v));
    return norm(*KTX_TRY(child(attention, Role::KNorm)), projected, k);
  }

  // The KV slot that an attention reads: its own, or that of an earlier layer. Where that layer is
  // on another device its keys and values are stored here as well.
  Result<int32_t> slot_of(const Module& attention, const ir::AttentionInfo& a) {
    const auto found = kept_.find(a.keys_of_layer < 0 ? attention.layer : a.keys_of_layer);
    if (found == kept_.end()) {
      return Error{fmt::format("module '{}' reads the keys of layer {}, which has none",
                               attention.path, a.keys_of_layer)};
    }
    Keys& keys = found->second;
    const auto [slot, added] = keys.slots.try_emplace(attention.decision.device);
    if (added) {
      slot->second = add_kv_slot(attention, a.kv_heads, a.head_dim, a.head_dim, a.window);
      emit(attention, StepOp::KvStore, {keys.k, keys.v}, {}, {}, KvStoreAttrs{slot->second});
    }
    return slot->second;
  }

  // q_proj of gated attention has for each head the rows of its query, then those of its gate: the
  // product with one half or the other of all heads.
  Result<View> head_halves(const Module& attention, const ir::AttentionInfo& a, int32_t half,
                           View in, const char* value_name) {
    const Module* module = KTX_TRY(child(attention, Role::QProj));
    const Param* weight = module->param("weight");
    if (!weight || weight->sources.size() != 1 || weight->sources[0].row_count != -1) {
      return Error{fmt::format("the weight of '{}' cannot be cut by heads", module->path)};
    }
    Param part = *weight;
    part.name = half == 0 ? "weight.query" : "weight.gate";
    part.rows = int64_t{a.heads} * a.head_dim;
    part.sources.clear();
    for (int64_t head = 0; head < a.heads; ++head) {
      part.sources.push_back(
          {weight->sources[0].tensor, (2 * head + half) * a.head_dim, a.head_dim});
    }
    const View out = value(value_name, part.rows);
    const BlobId weights = KTX_TRY(blob(*module, &part));
    emit(*module, StepOp::Matmul, {in, View{}}, {out}, {weights, kAbsent}, MatmulAttrs{});
    KTX_TRY(apply_factor(*module, out));
    return out;
  }

  // The states of a sequence are numbered in the order of the steps that have one.
  Result<Term> lower_delta_net(const Module& net, View in) {
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
    emit(net, StepOp::Glu, {gate, out}, {out}, {}, GluAttrs{});
    return term(net, Role::OProj, out, "attn_out");
  }

  // Kimi delta attention.
  Result<Term> lower_channel_delta_net(const Module& net, const ir::DeltaNetInfo& d, View in) {
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
    const View rates = KTX_TRY(linear(forget, Role::DeltaForgetAProj, in, "delta_forget"));
    const View a = KTX_TRY(linear(forget, Role::DeltaForgetBProj, rates, "delta_a"));
    const View b = KTX_TRY(linear(net, Role::DeltaBProj, in, "delta_b"));
    const View open = KTX_TRY(linear(net, Role::DeltaGateAProj, in, "delta_open"));
    const View gate = KTX_TRY(linear(net, Role::DeltaGateBProj, open, "delta_gate"));
    const View out = value("delta", d.width());
    const BlobId decay = KTX_TRY(blob(net, "decay"));
    const BlobId dt_bias = KTX_TRY(blob(net, "dt_bias"));
    emit(net, StepOp::DeltaRule, {qkv, b, a}, {out}, {decay, dt_bias},
         DeltaRuleAttrs{states_++, d.key_heads, d.value_heads, d.head_dim, d.tiled, 1});
    KTX_TRY(norm(*KTX_TRY(child(net, Role::DeltaNorm)), out, out));
    emit(net, StepOp::Glu, {gate, out}, {out}, {},
         GluAttrs{static_cast<int32_t>(Activation::Sigmoid)});
    return term(net, Role::OProj, out, "attn_out");
  }

  // Where a head's key and value parts of the latent projection are: in their own
  // tensors, or rows of one matrix per head (nope rows of key, then value rows).
  struct LatentProjection {
    BlobId key = kAbsent;
    BlobId value = kAbsent;
    bool split = true;
  };
  Result<LatentProjection> latent_projection(const Module& kv_b, const ir::MlaInfo& a) {
    if (kv_b.param("weight")) {
      const BlobId both = KTX_TRY(blob(kv_b, "weight", a.heads));
      return LatentProjection{both, both, false};
    }
    const BlobId key = KTX_TRY(blob(kv_b, "k_b", a.heads));
    const BlobId value = KTX_TRY(blob(kv_b, "v_b", a.heads));
    return LatentProjection{key, value, true};
  }

  Result<Term> lower_mla(const Module& attention, View in) {
    const ir::MlaInfo* a = KTX_TRY(info_of<ir::MlaInfo>(attention));
    const int32_t q_dim = a->nope_dim + a->rope_dim;
    const int32_t key_dim = a->kv_lora_rank + a->rope_dim;
    View q, latent;
    if (a->q_lora_rank > 0) {
      latent = KTX_TRY(linear(attention, Role::QAProj, in, "q_a"));
      KTX_TRY(norm(*KTX_TRY(child(attention, Role::QANorm)), latent, latent));
      q = KTX_TRY(linear(attention, Role::QBProj, latent, "q"));
    } else {
      q = KTX_TRY(linear(attention, Role::QProj, in, "q"));
    }
    q = grown(attention, q, a->grown);
    const View kv = KTX_TRY(linear(attention, Role::KvAProj, in, "kv_a"));
    const View kv_latent{kv.value, 0, a->kv_lora_rank};
    const View kv_rope{kv.value, a->kv_lora_rank, a->rope_dim};
    KTX_TRY(norm(*KTX_TRY(child(attention, Role::KvANorm)), kv_latent, kv_latent));
    if (a->rotated) {
      KTX_TRY(rope(attention, kv_rope, kv_rope,
                   {.heads = 1, .head_dim = a->rope_dim, .y_head_dim = a->rope_dim}));
    }
    const int32_t slot = add_kv_slot(attention, 1, key_dim, 0);
    emit(attention, StepOp::KvStore, {kv, View{}}, {}, {}, KvStoreAttrs{slot});

    const Module& kv_b = *KTX_TRY(child(attention, Role::KvBProj));
    const LatentProjection b = KTX_TRY(latent_projection(kv_b, *a));
    const View absorbed = value("q_latent", int64_t{a->heads} * key_dim);
    RopeAttrs rotated{.heads = a->heads,
                      .head_dim = q_dim,
                      .rotary_begin = a->nope_dim,
                      .y_head_dim = key_dim,
                      .y_begin = a->kv_lora_rank};
    if (a->rotated) {
      KTX_TRY(rope(attention, q, absorbed, rotated));
    } else {  // by no angle: a copy
      rotated.rotary_dim = a->rope_dim;
      const std::string& device = attention.decision.device;
      const std::vector<float> still(static_cast<size_t>(a->rope_dim / 2));
      const BlobId inv_freq =
          constant(fmt::format("still.{}@{}", a->rope_dim, device), still, device);
      emit(attention, StepOp::Rope, {q}, {absorbed}, {inv_freq}, rotated);
    }
    // After the rotary parts of the same rows, which need no product.
    emit(kv_b, StepOp::MatmulHeads, {q, View{}}, {absorbed}, {b.key},
         MatmulHeadsAttrs{a->heads, !b.split, 0, b.split ? a->kv_lora_rank : a->nope_dim, q_dim,
                          key_dim});
    const View latent_out = value("attn_latent", int64_t{a->heads} * a->kv_lora_rank);
    const AttentionAttrs attrs{slot, a->heads, 1, key_dim, a->kv_lora_rank, 1, a->scale};
    if (a->top_k > 0) {
      const View positions = KTX_TRY(chosen_positions(attention, *a, in, latent));
      emit(attention, StepOp::SparseAttention, {absorbed, positions}, {latent_out}, {}, attrs);
    } else {
      emit(attention, StepOp::Attention, {absorbed}, {latent_out}, {kAbsent}, attrs);
    }
    const View out = value("attn", int64_t{a->heads} * a->value_dim);
    emit(kv_b, StepOp::MatmulHeads, {latent_out, View{}}, {out}, {b.value},
         MatmulHeadsAttrs{a->heads, 0, b.split ? 0 : a->nope_dim, a->value_dim, a->kv_lora_rank,
                          a->value_dim});
    return term(attention, Role::OProj, out, "attn_out");
  }

  // The positions that sparse attention reads: its indexer's choice, or that of an earlier layer.
  // The indexer's keys have a KV slot of their own.
  Result<View> chosen_positions(const Module& attention, const ir::MlaInfo& a, View in,
                                View q_latent) {
    const Module* indexer = modules_.child(attention, Role::Indexer);
    if (!indexer) {
      const auto found = chosen_.find(a.positions_of_layer);
      if (found != chosen_.end()) return found->second;
      return Error{fmt::format("module '{}' takes the positions of layer {}, which has none",
                               attention.path, a.positions_of_layer)};
    }
    const View q = KTX_TRY(linear(*indexer, Role::IndexQProj, q_latent, "index_q"));
    const View k = KTX_TRY(linear(*indexer, Role::IndexKProj, in, "index_k"));
    KTX_TRY(norm(*KTX_TRY(child(*indexer, Role::IndexKNorm)), k, k));
    RopeAttrs rotated{.head_dim = a.index_dim, .y_head_dim = a.index_dim};
    KTX_TRY(rope(attention, k, k, rotated, a.index_interleaved));
    rotated.heads = a.index_heads;
    KTX_TRY(rope(attention, q, q, rotated, a.index_interleaved));
    const int32_t slot = add_kv_slot(attention, 1, a.index_dim, 0);
    emit(attention, StepOp::KvStore, {k, View{}}, {}, {}, KvStoreAttrs{slot});
    const View weights = KTX_TRY(linear(*indexer, Role::IndexWeightsProj, in, "index_weights"));
    const View positions = value("positions", a.top_k, ValueType::I32);
    const double scale = 1 / std::sqrt(static_cast<double>(a.index_heads) * a.index_dim);
    emit(
        attention, StepOp::ChoosePositions, {q, weights}, {positions}, {},
        ChoosePositionsAttrs{slot, a.index_heads, a.index_dim, a.top_k, static_cast<float>(scale)});
    chosen_[attention.layer] = positions;
    return positions;
  }

  // act(gate(in)) * up(in) of a dense feed-forward part, or act(up(in)) of one without a gate.
  Result<View> mlp_hidden(const Module& mlp, View in) {
    const ir::MlpInfo* m = KTX_TRY(info_of<ir::MlpInfo>(mlp));
    const std::string prefix = mlp.role == Role::SharedMlp ? "shared_" : "";
    if (m->unit >= 0) {
      const View inner = KTX_TRY(linear(mlp, Role::UpProj, in, (prefix + "up").c_str()));
      emit(mlp, StepOp::Activate, {inner}, {inner}, {}, ActivateAttrs{m->unit});
      return inner;
    }
    const View gate = KTX_TRY(part_linear(mlp, Role::GateProj, Role::GateUpProj, 0, m->width, in,
                                          (prefix + "gate").c_str()));
    const View up = KTX_TRY(part_linear(mlp, Role::UpProj, Role::GateUpProj, m->width, m->width, in,
                                        (prefix + "up").c_str()));
    emit(mlp, StepOp::Glu, {gate, up}, {up}, {}, m->glu);
    return up;
  }

  Result<Terms> lower_mlp(const Module& layer, View in) {
    const Module& mlp = *KTX_TRY(child(layer, Role::Mlp));
    const View up = KTX_TRY(mlp_hidden(mlp, in));
    const Term out = KTX_TRY(term(mlp, Role::DownProj, up, "mlp_out"));
    KTX_TRY(optional_norm(layer, Role::DensePostNorm, out.view));
    return Terms{out};
  }

  // Experts beside the dense part, with norms of their own.
  Result<Term> lower_experts_beside(const Module& layer, const Module& block) {
    const View scored = value("router_norm", modules_.facts.hidden);
    KTX_TRY(norm(*KTX_TRY(child(block, Role::RouterNorm)), x_, scored));
    const View in = value("experts_norm", modules_.facts.hidden);
    KTX_TRY(norm(*KTX_TRY(child(layer, Role::ExpertsNorm)), x_, in));
    const Module& router = *KTX_TRY(child(block, Role::Router));
    const Module& experts = *KTX_TRY(child(layer, Role::Experts));
    const Terms terms = KTX_TRY(lower_routed(router, experts, scored, in));
    const View out = terms[0].view;
    for (size_t i = 1; i < terms.size(); ++i) add(terms[i], out);
    const Module* post = KTX_TRY(child(layer, Role::ExpertsPostNorm));
    KTX_TRY(norm(*post, out, out));
    return Term{post, out};
  }

  Result<Terms> lower_moe(const Module& layer, const Module& moe, View in) {
    const Module& router = *KTX_TRY(child(moe, Role::Router));
    const Module& experts = *KTX_TRY(child(moe, Role::Experts));
    Terms terms = KTX_TRY(lower_routed(router, experts, in, in));
    const Module* shared = modules_.child(moe, Role::SharedMlp);
    if (!shared) shared = modules_.child(layer, Role::SharedMlp);  // Granite
    if (shared) {
      terms.push_back(KTX_TRY(lower_shared_experts(moe, *shared, in)));
    }
    return terms;
  }

  // `scored`: what the router reads.
  Result<Terms> lower_routed(const Module& router, const Module& experts, View scored, View in) {
    const ir::RouterInfo* info = KTX_TRY(info_of<ir::RouterInfo>(router));
    const RouterAttrs& r = info->attrs;
    const View scores = value("router", r.experts);
    const BlobId router_weight = KTX_TRY(blob(router, "weight"));
    const BlobId router_bias = KTX_TRY(optional_blob(router, "bias"));
    emit(router, StepOp::Matmul, {scored, View{}}, {scores}, {router_weight, router_bias},
         MatmulAttrs{});
    const View ids = value("expert_ids", r.top_k, ValueType::I32);
    const View weights = value("expert_weights", r.top_k);
    const BlobId bias = KTX_TRY(optional_blob(router, "correction_bias"));
    const BlobId factors = KTX_TRY(optional_blob(router, "factors"));
    if (factors != kAbsent && experts.param("down_bias")) {
      return Error{fmt::format("module '{}' has factors and biases of down, which is not known",
                               experts.path)};
    }
    emit(router, StepOp::Router, {scores}, {ids, weights}, present({bias, factors}, 1), r);
    if (info->scales_input) {
      if (bias != kAbsent || factors != kAbsent) {
        return Error{
            fmt::format("module '{}' scales its input and has a bias or factors, which is "
                        "not known",
                        router.path)};
      }
      in = KTX_TRY(scaled_input(router, r, scores, in));
    }
    return lower_experts(experts, {r, in, ids, weights});
  }

  // What the one expert of a token reads: its score, not normalised, times the input. (The weight
  // of its output, normalised, is 1.)
  Result<View> scaled_input(const Module& router, RouterAttrs attrs, View scores, View in) {
    attrs.normalize = 0;
    const View ids = value("scored_ids", attrs.top_k, ValueType::I32);
    const View score = value("expert_score", attrs.top_k);
    emit(router, StepOp::Router, {scores}, {ids, score}, {kAbsent}, attrs);
    const View scaled = value("experts_in", in.width);
    emit(router, StepOp::RowScale, {in, score}, {scaled}, {}, NoAttrs{});
    return scaled;
  }

  // The router's output, and what the experts take.
  struct Routed {
    const RouterAttrs& router;
    View in, ids, weights;
  };

  // Experts of a layer on one device: all of them, or some (ir::ExpertSet) with numbers of their
  // own, which group_experts finds in `places`.
  Result<Term> lower_experts_on(const Module& experts, const ExpertGroup& group,
                                const Routed& routed) {
    const ir::ExpertsInfo* e = KTX_TRY(info_of<ir::ExpertsInfo>(experts));
    const int32_t top_k = routed.router.top_k, all = routed.router.experts;
    const bool some = !group.experts.empty();
    const int32_t count = some ? static_cast<int32_t>(group.experts.size()) : all;
    const std::string& device = group.device;
    const auto named = [&](const char* base) { return base + group.suffix; };
    const View order = value(named("expert_order"), top_k, ValueType::I32);
    const View offsets =
        value(named("expert_offsets"), int64_t{count} + 1, ValueType::I32, RowKind::Single);
    BlobId places = kAbsent;
    if (some) {
      places = constant(fmt::format("{}.places@{}", experts.path, device),
                        places_of(group.experts, all), device);
    }
    emit_on(device, experts, StepOp::GroupExperts, {routed.ids}, {order, offsets}, {places},
            GroupExpertsAttrs{count, top_k, group.first_rank, group.ranks});
    const View hidden =
        value(named("expert_hidden"), e->width, ValueType::F32, RowKind::Token, top_k);
    const auto weight = [&](const char* name) -> Result<BlobId> {
      const Param* param = experts.param(name);
      if (!param || !some) return blob(experts, name);
      const Param part = KTX_TRY(experts_of(experts, *param, group.experts));
      return blob_on(device, experts, &part);
    };
    const BlobId gate = KTX_TRY(weight("gate"));
    const BlobId up = KTX_TRY(weight("up"));
    const auto optional = [&](const char* name) -> Result<BlobId> {
      return experts.param(name) ? weight(name) : BlobId{kAbsent};
    };
    const BlobId gate_bias = KTX_TRY(optional("gate_bias"));
    const BlobId up_bias = KTX_TRY(optional("up_bias"));
    const BlobId gate_factors = KTX_TRY(optional("gate_factors"));
    const BlobId up_factors = KTX_TRY(optional("up_factors"));
    emit_on(device, experts, StepOp::ExpertsGateUp, {routed.in, View{}, order, offsets}, {hidden},
            present({gate, up, gate_bias, up_bias, gate_factors, up_factors}, 4),
            ExpertsAttrs{count, top_k, 0, e->glu.activation, e->glu.limit});
    graph_.steps.back().use = group.use;
    const BlobId down = KTX_TRY(weight("down"));
    const BlobId down_bias = KTX_TRY(optional("down_bias"));
    const View out = value(named("experts_out"), modules_.facts.hidden);
    emit_on(device, experts, StepOp::ExpertsDown, {hidden, View{}, order, offsets, routed.weights},
            {out}, {down, down_bias}, ExpertsAttrs{count, top_k, 0});
    graph_.steps.back().use = group.use;
    return Term{&experts, out, device};
  }

  static std::vector<float> places_of(const std::vector<int32_t>& experts, int32_t all) {
    std::vector<float> places(static_cast<size_t>(all), -1.0f);
    for (size_t i = 0; i < experts.size(); ++i) places[experts[i]] = static_cast<float>(i);
    return places;
  }

  // A term for each device, those of GPUs first, so that sums begin there. The CPU's steps come
  // first: insert-transfers hands over what they read before the GPU goes on with its own experts.
  Result<Terms> lower_experts(const Module& experts, const Routed& routed) {
    for (const ir::ExpertSet& set : experts.decision.expert_sets) {
      if (set.experts.empty() || set.device == "auto") {
        return Error{fmt::format("'{}': place-devices has not chosen which experts go to {}",
                                 experts.path, set.device)};
      }
    }
    std::vector<ExpertGroup> groups = expert_groups(experts, routed.router.experts);
    const auto of_cpu = [](const ExpertGroup& group) { return target::is_cpu(group.device); };
    std::stable_partition(groups.begin(), groups.end(), of_cpu);
    const Terms late = KTX_TRY(lower_deferred());
    Terms cpu, others;
    for (ExpertGroup& group : groups) {
      if (of_cpu(group)) KTX_TRY(defer(experts, group, routed));
      (of_cpu(group) ? cpu : others).push_back(KTX_TRY(lower_experts_on(experts, group, routed)));
    }
    for (const Terms& more : {cpu, late}) others.insert(others.end(), more.begin(), more.end());
    return others;
  }

  // Leaves the rule's share of a group to the next layer with experts (deferred_experts.h).
  Status defer(const Module& experts, ExpertGroup& group, const Routed& routed) {
    const int32_t deferred = deferred_steps(modules_, experts);
    if (deferred == 0) return {};
    const std::string obstacle = deferral_obstacle(modules_, experts, deferred);
    if (!obstacle.empty()) return Error{fmt::format("'{}' {}", experts.path, obstacle)};
    deferred_.push_back({&experts, take_deferred(group, routed.router.top_k, deferred), routed});
    return {};
  }

  // What the layer before has left. It reads that layer's values, which stay where they are, and is
  // a sum of its own: with those of this layer in one, a GPU could stream all layers or none.
  Result<Terms> lower_deferred() {
    Terms terms;
    for (const Deferred& left : std::exchange(deferred_, {})) {
      const int32_t here = std::exchange(layer_, left.experts->layer);
      terms.push_back(KTX_TRY(lower_experts_on(*left.experts, left.group, left.routed)));
      layer_ = here;
    }
    return terms;
  }

  // A term of its own, so that the products need not wait for the routed experts.
  Result<Term> lower_shared_experts(const Module& moe, const Module& shared, View in) {
    const View up = KTX_TRY(mlp_hidden(shared, in));
    const Term out = KTX_TRY(term(shared, Role::DownProj, up, "shared_out"));
    if (const Module* gate = modules_.child(moe, Role::SharedGate)) {
      const View score = KTX_TRY(linear(moe, Role::SharedGate, in, "shared_score"));
      emit(*gate, StepOp::SigmoidScale, {out.view, score}, {out.view}, {}, NoAttrs{});
    }
    return Term{&shared, out.view};
  }

  const ir::ModuleGraph& modules_;
  const bool keep_hidden_;
  steps::StepGraph& graph_;
  const Module* rotary_ = nullptr;
  const Module* local_rotary_ = nullptr;
  // Keys and values of a layer as they are stored, and its KV slots by device.
  struct Keys {
    View k, v;
    std::map<std::string, int32_t> slots;
  };
  std::map<int32_t, Keys> kept_;    // by layer
  std::map<int32_t, View> chosen_;  // positions, by layer
  View x_;                          // the residual stream
  View layer_inputs_;               // of all layers, where the embedding has parts for them
  int32_t layer_ = -1;
  struct Deferred {
    const Module* experts;
    ExpertGroup group;
    Routed routed;
  };
  std::vector<Deferred> deferred_;  // of the last layer with experts
  int32_t states_ = 0;
  std::map<std::string, BlobId> blob_ids_;
};

}  // namespace

Status lower_to_steps(CompileState& state) {
  state.steps = {};
  return Lowering(state.modules, state.keep_hidden, state.steps).run();
}

}  // namespace ktx::passes

// Turns the rows of a family's table into modules: consecutive rows with "{layer}" once per layer,
// rows with "{expert}" once as a part of every expert, other rows once.
#include "lib/arch/build_graph.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <unordered_map>

#include "lib/arch/hyper_params.h"
#include "lib/arch/rope_frequencies.h"
#include "lib/arch/row_shapes.h"
#include "lib/arch/tensor_binder.h"
#include "lib/families/class_names.h"
#include "lib/families/config_form.h"
#include "lib/families/not_loaded.h"
#include "lib/families/prediction_rows.h"
#include "lib/support/strings.h"

namespace ktx::arch {
namespace {

using families::AttentionKind;
using families::ClassNames;
using families::ClassRow;
using families::Family;
using families::ModuleRow;
using families::ParamRow;
using families::When;
using ir::Role;

std::string replace(std::string text, std::string_view mark, std::string_view value) {
  for (size_t at = 0; (at = text.find(mark, at)) != std::string::npos; at += value.size()) {
    text.replace(at, mark.size(), value);
  }
  return text;
}

std::string_view purpose_of(Role role) {
  static constexpr std::string_view kSentences[] = {
#define KTX_ROLE(id, name, kind, sentence) sentence,
#include "lib/ir/roles.def"
#undef KTX_ROLE
  };
  return kSentences[static_cast<size_t>(role)];
}

// The share of the pairs that turn.
constexpr std::string_view kProportion = "partial_rotary_factor";

class Builder {
 public:
  // `first_layer` and those behind it; of prediction layers the first alone.
  Builder(const Family& family, HyperParams params, const input::HfConfig& config,
          const input::GgufFile* gguf, DiagSink& diags, int64_t ctx, int32_t first_layer)
      : family_(family),
        params_(std::move(params)),
        config_(config),
        gguf_(gguf),
        diags_(diags),
        ctx_(ctx),
        first_layer_(first_layer),
        predicts_(first_layer == params_.layers),
        binder_(gguf, {params_.layers, params_.experts, params_.tied.value_or(false)}, diags) {
    const input::GgufTensor* const down =
        gguf && family.is_tower() ? gguf->find("v.blk.0.ffn_down.weight") : nullptr;
    swapped_mlp_ = down && down->shape[0] == params_.hidden &&
                   down->shape[1] == params_.shape(0).mlp_width && down->shape[0] != down->shape[1];
  }

  ir::ModuleGraph run() {
    rope_ = rope_table(params_.rope, params_.rotary_dim, family_.attention == AttentionKind::Mla,
                       asked_ctx());
    local_rope_ = rope_table(params_.local_rope, params_.local_rotary_dim, false, 0);
    use_rope_factors();
    if (params_.grid_rope) rope_.inv_freq = over_grid(rope_.inv_freq, family_.tower.one_frequency);
    set_facts();
    std::vector<const ModuleRow*> layer_rows;
    for (std::span<const ModuleRow> stretch : family_.rows.tree) {
      for (const ModuleRow& row : stretch) {
        const std::string_view path = row.path;
        if (path.starts_with("L.") || path.find("{layer}") != std::string_view::npos) {
          layer_rows.push_back(&row);
        } else {
          add_layers(layer_rows);
          if (holds(row.when, -1)) add(row, -1);
        }
      }
    }
    add_layers(layer_rows);
    if (predicts_ || family_.is_draft_head()) return std::move(graph_);
    graph_.extra_tensors =
        binder_.leftovers(params_.layers, params_.rope.type == RopeType::LongRope);
    return std::move(graph_);
  }

 private:
  void set_facts() {
    ir::ModelFacts& facts = graph_.facts;
    facts.family = family_.architecture;
    facts.architecture = family_.gguf_arch;
    if (gguf_ != nullptr) facts.name = gguf_->string("general.name").value_or("");
    facts.vocab = params_.vocab;
    facts.hidden = params_.hidden;
    facts.layers = params_.layers + (predicts_ ? 1 : 0);
    facts.context_length = params_.context;
    facts.logit_softcap = params_.logit_softcap;
    facts.residual_scale = params_.residual_scale;
    facts.logit_scale = params_.logit_scale;
    facts.pooling = params_.pooling;
    facts.scores = params_.scores;
    facts.encoder = params_.encoder;
    facts.draft_vocab = static_cast<int32_t>(params_.draft_vocab);
    facts.normed_stream = params_.normed_stream;
  }

  // The context of the plan; below 0: the largest that fits, which may be the model's.
  int64_t asked_ctx() const {
    if (ctx_ < 0) return params_.context;
    return ctx_ > 0 ? ctx_ : std::min(kDefaultCtx, params_.context);
  }

  void warn(std::string what) { diags_.warning({.file = gguf_->path()}, "", std::move(what)); }
  void fail(std::string what) { diags_.error({.file = gguf_->path()}, "", std::move(what)); }

  // llama3 scaling in a GGUF is a tensor of divisors, longrope two of them; they win over the
  // config.
  void use_rope_factors() {
    const bool is_llama3 = params_.rope.type == RopeType::Llama3;
    const bool is_longrope = params_.rope.type == RopeType::LongRope;
    const bool is_short = rope_.context > 0;
    const std::string_view name = !is_longrope ? "rope_freqs.weight"
                                  : is_short   ? "rope_factors_short.weight"
                                               : "rope_factors_long.weight";
    const std::string_view key = !is_longrope ? "rope_scaling.low_freq_factor"
                                 : is_short   ? "rope_scaling.short_factor"
                                              : "rope_scaling.long_factor";
    if (is_longrope && !is_short && ctx_ > 0) {
      diags_.note({.file = config_.file()}, "",
                  fmt::format("--ctx {} takes longrope's factors of contexts above {} tokens, for "
                              "short texts, too",
                              ctx_, params_.rope.original_context));
    }
    if (is_longrope && !is_short && ctx_ < 0) {
      diags_.note(
          {.file = config_.file()}, "",
          fmt::format("--ctx max takes longrope's factors of contexts above {0} tokens, for "
                      "short texts, too; where no more fit, compile with --ctx {0}",
                      params_.rope.original_context));
    }
    const auto& lists = is_short ? params_.rope.short_factors : params_.rope.long_factors;
    const bool by_config = is_longrope ? !lists.empty() : params_.rope.low_freq_factor.has_value();
    const input::GgufTensor* tensor = gguf_ == nullptr ? nullptr : gguf_->find(name);
    if (tensor == nullptr) {
      if ((is_llama3 || is_longrope) && !by_config) {
        diags_.error({.file = config_.file()}, "",
                     fmt::format("{} rope scaling has neither '{}' nor a tensor '{}'",
                                 is_llama3 ? "llama3" : "longrope", key, name));
      }
      return;
    }
    const bool proportional = params_.rope.type == RopeType::Proportional;
    if (!is_llama3 && !is_longrope && !proportional && params_.rope.type != RopeType::Plain) {
      return warn(
          fmt::format("tensor '{}' is not used: the config has another rope scaling", name));
    }
    const size_t count = rope_.inv_freq.size();
    // A model whose kinds of layers rotate other parts of a head has the longest list.
    const int64_t most = std::max<int64_t>(count, local_rope_.inv_freq.size());
    if ((tensor->elems != static_cast<int64_t>(count) && tensor->elems != most) ||
        tensor->dtype == DType::I32 || !row_bytes(tensor->dtype, tensor->elems)) {
      return fail(
          fmt::format("tensor '{}' has {} elements, expected {}", name, tensor->elems, count));
    }
    if (!gguf_->has_data()) {
      if (!by_config && !proportional) {
        // This is a check, which needs no rotary frequencies.
        diags_.note({.file = gguf_->path()}, "",
                    fmt::format("tensor '{}' is not in the file, which ends after its header; its "
                                "values are not checked",
                                name));
      }
      return;
    }
    std::vector<float> factors(static_cast<size_t>(tensor->elems));
    dequantize_row(tensor->dtype, tensor->bytes.data(), tensor->elems, factors.data());
    factors.resize(count);
    for (float factor : factors) {
      if (!std::isfinite(factor) || factor <= 0) {
        return fail(fmt::format("tensor '{}' holds {}, expected positive numbers", name, factor));
      }
    }
    const bool compared =
        by_config || params_.rope.type == RopeType::Plain || config_says(kProportion);
    compare_and_take(rope_from_factors(params_.rope, factors), name, compared);
  }

  void compare_and_take(std::vector<float> scaled, std::string_view name, bool compared) {
    // Files divide the frequencies of pairs that do not turn by 1e30.
    constexpr float kStill = 1e-20F;
    for (size_t i = 0; compared && i < scaled.size(); ++i) {
      const float by_config = rope_.inv_freq[i];
      if (std::abs(scaled[i] - by_config) <= 1e-3F * by_config + kStill) continue;
      warn(
          fmt::format("rotary frequency {} is {} by tensor '{}' and {} by the config; the tensor "
                      "is used",
                      i, scaled[i], name, by_config));
      break;
    }
    rope_.inv_freq = std::move(scaled);
  }

  bool config_says(std::string_view key) const {
    const input::ConfigValue* value = config_.find(key);
    return value != nullptr && value->origin == input::ConfigOrigin::Config;
  }

  bool holds(When when, int32_t layer) const {
    const HyperParams& p = params_;
    switch (when) {
      case When::Always:
        return true;
      case When::Dense:
        return p.shape(layer).feed_forward && !p.shape(layer).experts;
      case When::Moe:
        return p.shape(layer).experts;
      case When::MoeWithShared:
        return p.shape(layer).experts && p.shared_width > 0;
      case When::MoeWithLatent:
        return p.shape(layer).experts && p.expert_latent > 0;
      case When::LatentNorm:
        return p.shape(layer).experts && p.expert_latent > 0 && p.latent_norm;
      case When::OutputGate:
        return p.shape(layer).attention && !p.shape(layer).delta_net && p.output_gate;
      case When::OwnKeys:
        return p.shape(layer).keys_of_layer < 0;
      case When::OwnValues:
        return p.shape(layer).keys_of_layer < 0 && !p.shape(layer).keys_as_values;
      case When::LayerInputs:
        return p.layer_input_width > 0;
      case When::QueryLatent:
        return p.q_lora_rank > 0;
      case When::NoQueryLatent:
        return p.q_lora_rank == 0;
      case When::RopePlain:
        return p.rope.type == RopeType::Plain;
      case When::RopeLinear:
        return p.rope.type == RopeType::Linear;
      case When::RopeDynamic:
        return p.rope.type == RopeType::Dynamic;
      case When::RopeYarn:
        return p.rope.type == RopeType::Yarn;
      case When::QkvBias:
        return p.qkv_bias;
      case When::AttentionBias:
        return p.attention_bias;
      case When::MlpBias:
        return p.mlp_bias;
      case When::BehindFirst:
        return layer > 0;
      case When::MlpNorm:
        return !p.parallel_parts;
      case When::SideMlpNorm:
        return p.parallel_parts;
      case When::QkNorm:
        return p.qk_norm;
      case When::CorrectionBias:
        return p.correction_bias;
      case When::FullAttention:
        return p.shape(layer).attention && !p.shape(layer).delta_net;
      case When::FullQuery:
      case When::FullQueryLatent:
        return p.shape(layer).attention && !p.shape(layer).delta_net &&
               (p.q_lora_rank > 0) == (when == When::FullQueryLatent);
      case When::DeltaNet:
        return p.shape(layer).delta_net;
      case When::StateSpace:
        return p.shape(layer).state_space;
      case When::ShortConv:
        return p.shape(layer).short_conv;
      case When::ConvBias:
        return p.conv_bias;
      case When::StateSpaceNorm:
        return p.shape(layer).state_space && p.state_space_norm;
      case When::Mixer:
        return p.shape(layer).attention || p.shape(layer).state_space;
      case When::FeedForward:
        return p.shape(layer).feed_forward;
      case When::Rotated:
        return std::ranges::any_of(p.shapes, &LayerShape::rotated);
      case When::Logits:
        return p.scores == 0;
      case When::Scores:
        return p.scores > 0;
      case When::RotatedQkNorm:
        return p.qk_norm && p.shape(layer).rotated;
      case When::ScoreDense:
        return p.scores > 0 && p.score_dense;
      case When::TextDense:
        return p.text_dense > 0;
      case When::TextTypes:
        return p.text_types > 0;
      case When::Sinks:
        return p.shape(layer).sinks;
      case When::Indexer:
        return p.shape(layer).indexer;
      case When::Compressed:
        return p.shape(layer).every > 0;
      case When::CompressedAll:
        return p.shape(layer).every > 0 && !p.shape(layer).indexer;
      case When::ExpertTable:
        return p.shape(layer).experts && p.shape(layer).expert_table;
      case When::NoExpertTable:
        return p.shape(layer).experts && !p.shape(layer).expert_table;
      case When::ImageBias:
        return p.image_bias;
      case When::ImagePart:
        return p.shape(layer).image_part;
      case When::GivenNorm:
        return p.given_norm;
      case When::Ngrams:
        return p.shape(layer).ngrams;
    }
    return false;
  }

  static std::string expand_layer(std::string_view text, int32_t layer) {
    std::string out(text);
    if (out.starts_with("L.")) out = "model.layers.{layer}" + out.substr(1);
    return replace(replace(out, "B.", "blk.{layer}."), "{layer}", std::to_string(layer));
  }

  // Files of some families have what such a layer does not read.
  void leave_out(const ModuleRow& row, int32_t layer) {
    if (row.when != When::OwnKeys && row.when != When::OwnValues) return;
    for (const ParamRow& param : row.params) {
      if (param.name == nullptr) continue;
      binder_.leave_out(tensors_of(param, layer),
                        "keys and values of a layer that reads those of another");
    }
  }

  // For parameter "bias" at "B.attn_q." this is "blk.3.attn_q.bias".
  static std::string tensors_of(const ParamRow& param, int32_t layer) {
    std::string out = expand_layer(param.tensors, layer);
    if (out.ends_with('.')) out += param.name;
    return out;
  }

  void add_layers(std::vector<const ModuleRow*>& rows) {
    if (rows.empty()) return;
    for (int32_t layer = first_layer_; layer < graph_.facts.layers; ++layer) {
      for (const ModuleRow* row : rows) {
        if (holds(row->when, layer)) {
          add(*row, layer);
        } else if (params_.shape(layer).keys_of_layer >= 0) {
          leave_out(*row, layer);
        }
        if (!predicts_ || row->role != Role::Layer) continue;
        for (const ModuleRow& own : families::kPrediction) add(own, layer);
      }
    }
    rows.clear();
  }

  void add(const ModuleRow& row, int32_t layer) {
    const std::string_view path = row.path;
    if (const size_t at = path.find("{expert}"); at != std::string_view::npos) {
      return add_part(row, path.substr(at + 8));
    }
    ir::Module module;
    module.path = expand_layer(path, layer);
    set_class(module, *row.row_class);
    module.role = row.role;
    module.layer = layer;
    const auto id = static_cast<ir::ModuleId>(graph_.modules.size());
    if (id > 0) {
      const size_t dot = module.path.rfind('.');
      module.parent = ids_.at(dot == std::string::npos ? "" : module.path.substr(0, dot));
      graph_.modules[module.parent].children.push_back(id);
    }
    ids_.emplace(module.path, id);
    const Role parent = id > 0 ? graph_.modules[module.parent].role : Role::Root;
    module.info = info_of(row.role, parent, layer, params_, rope_, local_rope_);
    add_params(row, module);
    graph_.modules.push_back(std::move(module));
  }

  template <class T>
  void set_class(T& module, const ClassRow& row) {
    auto [names, is_new] = classes_.try_emplace(&row);
    if (is_new) names->second = class_names(row, family_);
    module.class_name = names->second.name;
    module.aliases = names->second.aliases;
    module.bases = names->second.bases;
  }

  // `suffix`: "" or ".gate_proj". Every layer has the same parts.
  void add_part(const ModuleRow& row, std::string_view suffix) {
    ir::ExpertPart part;
    part.suffix = suffix.empty() ? "" : suffix.substr(1);
    for (const ir::ExpertPart& known : graph_.expert_parts) {
      if (known.suffix == part.suffix) return;
    }
    set_class(part, *row.row_class);
    part.role = row.role;
    if (row.params[0].name != nullptr) part.param = row.params[0].name;
    graph_.expert_parts.push_back(std::move(part));
  }

  void add_params(const ModuleRow& row, ir::Module& module) {
    for (const ParamRow& param : row.params) {
      if (param.name == nullptr || !holds(param.when, module.layer)) continue;
      if (row.role == Role::Layer) {
        const float scale =
            binder_.bind_number(tensors_of(param, module.layer), purpose_of(row.role));
        if (scale != 1) module.info = ir::LayerInfo{scale};
        continue;
      }
      if (row.role == Role::KvBProj &&
          (std::strcmp(param.name, "weight") == 0) != whole_kv_b(module)) {
        continue;
      }
      module.params.push_back(bind(row, param, module));
    }
    if (auto* linear = std::get_if<ir::LinearInfo>(&module.info)) {
      const ir::Param* weight = module.param("weight");
      if (weight && row.role != Role::KvBProj) {
        linear->factor *= binder_.bind_factor(weight->sources[0].tensor);
      }
    }
    add_expert_factors(row, module);
    if (row.role == Role::Head) check_tie(module);
  }

  // Adds the factors of the product with each expert's matrix (NVFP4, Gemma 4), where the file has
  // them. A factor of down is equivalent to one of the routing weight, and needs no kernel there.
  void add_expert_factors(const ModuleRow& row, ir::Module& module) {
    static constexpr struct {
      Role role;
      ParamRow param;
    } kFactors[] = {
        {Role::Router, {"factors", "B.ffn_down_exps.scale"}},
        {Role::Experts, {"gate_factors", "B.ffn_gate_exps.scale"}},
        {Role::Experts, {"up_factors", "B.ffn_up_exps.scale"}},
    };
    for (const auto& [role, param] : kFactors) {
      if (role == row.role && binder_.has(tensors_of(param, module.layer))) {
        module.params.push_back(bind(row, param, module));
      }
    }
  }

  // Split into k_b and v_b unless the GGUF has both in one.
  bool whole_kv_b(const ir::Module& module) const {
    return binder_.has(expand_layer("B.attn_kv_b.weight", module.layer));
  }

  ir::Param bind(const ModuleRow& row, const ParamRow& param, const ir::Module& module) {
    const ParamShape shape = shape_of(param.name, module.info, module.layer, params_);
    const std::string tensors =
        own_tensor(row.role) + in_file(row.role, tensors_of(param, module.layer));
    const std::string_view purpose = purpose_of(row.role);
    const std::string fused = fused_tensor(row.role, param.name, module.layer);
    if (!fused.empty() && !binder_.has(tensors) && binder_.has(fused)) {
      if (row.role == Role::Experts) {
        return binder_.bind_half(param.name, fused, shape, std::strcmp(param.name, "up") == 0,
                                 purpose);
      }
      const LayerShape& layer = params_.shape(module.layer);
      const int64_t q = int64_t{layer.heads} * layer.head_dim;
      const int64_t kv = int64_t{layer.kv_heads} * layer.head_dim;
      const int64_t v =
          int64_t{layer.kv_heads} * (params_.value_head > 0 ? params_.value_head : layer.head_dim);
      const int64_t first = row.role == Role::QProj ? 0 : row.role == Role::KProj ? q : q + kv;
      return binder_.bind_rows(param.name, fused, shape, first, q + kv + v, purpose);
    }
    return binder_.bind(param.name, tensors, shape, module.layer, purpose);
  }

  // "TENSOR | " where a prediction layer may have one that stands for the model's.
  std::string own_tensor(Role role) const {
    for (const families::PredictionTensor& own : families::kPredictionTensors) {
      if (predicts_ && own.role == role) return expand_layer(own.tensor, first_layer_) + " | ";
    }
    return "";
  }

  // Old files of towers call up ffn_down, and down ffn_up.
  std::string in_file(Role role, std::string tensors) const {
    if (!swapped_mlp_ || (role != Role::UpProj && role != Role::DownProj)) return tensors;
    return role == Role::UpProj ? replace(std::move(tensors), "ffn_up", "ffn_down")
                                : replace(std::move(tensors), "ffn_down", "ffn_up");
  }

  // Some converters write q, k and v, or the experts' gate and up, as one tensor.
  std::string fused_tensor(Role role, std::string_view param, int32_t layer) const {
    const bool is_qkv = role == Role::QProj || role == Role::KProj || role == Role::VProj;
    if (is_qkv && !family_.gated_attention && family_.attention == AttentionKind::Gqa) {
      return expand_layer(fmt::format("B.attn_qkv.{}", param), layer);
    }
    if (role == Role::Experts && (param == "gate" || param == "up")) {
      return expand_layer("B.ffn_gate_up_exps.weight", layer);
    }
    return "";
  }

  // A config that says the head is a tensor of its own is not overruled in silence.
  void check_tie(const ir::Module& head) {
    if (gguf_ == nullptr || params_.tied != false || binder_.has("output.weight")) return;
    const input::ConfigValue* value = config_.find("tie_word_embeddings");
    if (value == nullptr || value->origin != input::ConfigOrigin::Config) return;
    fail(
        fmt::format("tensor 'output.weight' ({}, [{}, {}]) is missing and the config says that the "
                    "embedding is not tied to it",
                    purpose_of(head.role), params_.hidden, params_.vocab));
  }

  const Family& family_;
  const HyperParams params_;
  const input::HfConfig& config_;
  const input::GgufFile* gguf_;
  DiagSink& diags_;
  const int64_t ctx_;
  const int32_t first_layer_;
  const bool predicts_;  // a prediction layer, not the model
  bool swapped_mlp_ = false;
  TensorBinder binder_;
  RopeTable rope_, local_rope_;
  ir::ModuleGraph graph_;
  std::unordered_map<std::string, ir::ModuleId> ids_;
  std::unordered_map<const ClassRow*, ClassNames> classes_;
};

// For a model type that is known in some forms alone: what those say ("'layer_types' 'attention'").
std::string known_forms(std::string_view type) {
  for (const families::ConfigForm& form : families::config_forms()) {
    if (type != form.model_type) continue;
    std::vector<std::string> wanted;
    for (const families::ConfigSign& sign : form.signs) {
      if (sign.text[0] != '\0') wanted.push_back(fmt::format("'{}' '{}'", sign.key, sign.text));
      if (sign.min > 0) wanted.push_back(fmt::format("'{}'", sign.key));
    }
    return fmt::format("; of this type only configs with {} are known", join(wanted, " and "));
  }
  return "";
}

}  // namespace

Result<const Family*> pick_architecture(const input::HfConfig& config) {
  const std::string type = config.model_type();
  if (const Family* family = families::find_family(
          type, config.strings("architectures").value_or(std::vector<std::string>()))) {
    return family;
  }
  // Names as the file that said it writes them: "qwen3moe" in a GGUF.
  const input::ConfigValue* value = config.find("model_type");
  const bool by_gguf =
      config.is_of_gguf() || (value != nullptr && value->origin == input::ConfigOrigin::Gguf);
  std::vector<std::string> known;
  for (const Family* family : families::all_families()) {
    if (!family->is_model()) continue;
    if (by_gguf) known.emplace_back(family->gguf_arch);
    if (by_gguf) continue;
    for (std::string_view type : split(family->model_types, ' ')) known.emplace_back(type);
  }
  std::sort(known.begin(), known.end());
  known.erase(std::unique(known.begin(), known.end()), known.end());
  if (type.empty()) {
    return Error{fmt::format("{}: '{}' is missing; known are {} [KTX-C002]", config.file(),
                             config.is_of_gguf() ? "general.architecture" : "model_type",
                             join(known, ", "))};
  }
  if (const std::string forms = known_forms(type); !forms.empty()) {
    return Error{
        fmt::format("{}: this form of '{}' is not known{} [KTX-C002]", config.file(), type, forms)};
  }
  if (const std::string_view needs = families::needs_of(type); !needs.empty()) {
    return Error{fmt::format("{}: '{}' is not loaded: it would need {} [KTX-C002]", config.file(),
                             type, needs)};
  }
  return Error{fmt::format("{}: unknown architecture '{}'{}; known are {} [KTX-C002]",
                           config.file(), printable(type), did_you_mean(type, known),
                           join(known, ", "))};
}

Status accept_architecture(const input::HfConfig& config) {
  const Family* family = KTX_TRY(pick_architecture(config));
  if (family->is_model()) return {};
  if (family->is_tower()) {
    return Error{fmt::format(
        "{}: a projector for images (mmproj) is no model; give the GGUF of the language model, and "
        "this one with --mmproj",
        config.file())};
  }
  return Error{fmt::format("{}: a draft head ({}) is no model; give it with --draft", config.file(),
                           family->draft_head)};
}

Result<ir::ModuleGraph> build_graph(const input::HfConfig& config, const input::GgufFile* gguf,
                                    DiagSink& diags, int64_t ctx) {
  KTX_TRY(accept_architecture(config));
  const Family* family = KTX_TRY(pick_architecture(config));
  if (gguf != nullptr && !gguf->architecture().empty() &&
      !family->stored_as(gguf->architecture())) {
    return Error{
        fmt::format("{}: general.architecture is '{}', but {} is a config of {}, which is "
                    "stored as '{}'; is it of another model? [KTX-T002]",
                    gguf->path(), printable(gguf->architecture()), config.file(),
                    family->architecture, family->gguf_arch)};
  }
  std::optional<HyperParams> params = read_hyper_params(*family, config, diags);
  if (!params) {
    return Error{
        fmt::format("{}: no {} can be made of this config", config.file(), family->architecture)};
  }
  return Builder(*family, std::move(*params), config, gguf, diags, ctx, 0).run();
}

namespace {

// As the last layer with attention over all positions has it.
LayerShape prediction_shape(const HyperParams& params, const input::GgufFile& gguf) {
  LayerShape shape = params.shapes.back();
  for (const LayerShape& one : params.shapes) {
    if (!one.delta_net && one.window == 0 && one.keys_of_layer < 0) shape = one;
  }
  shape.delta_net = false;
  shape.positions_of_layer = -1;
  shape.indexer = params.index_heads > 0;
  shape.experts = gguf.has(fmt::format("blk.{}.ffn_gate_inp.weight", params.layers));
  return shape;
}

}  // namespace

Result<ir::ModuleGraph> build_prediction_graph(const input::ModelSource& source, DiagSink& diags,
                                               int64_t ctx) {
  const input::GgufFile& gguf = source.gguf;
  const Family* family = KTX_TRY(pick_architecture(source.config));
  std::optional<HyperParams> params = read_hyper_params(*family, source.config, diags);
  if (!params) {
    return Error{fmt::format("{}: no {} can be made of this config", source.config.file(),
                             family->architecture)};
  }
  if (!gguf.has(fmt::format("blk.{}.nextn.eh_proj.weight", params->layers))) {
    return Error{
        fmt::format("{}: the file has no layers for multi-token prediction (tensors "
                    "'blk.{}.nextn.*'); draft with a small model instead: --draft SMALL.gguf",
                    gguf.path(), params->layers)};
  }
  if (!family->predicts) {
    return Error{
        fmt::format("{}: multi-token prediction of {} is not known; draft with a small model "
                    "instead: --draft SMALL.gguf",
                    gguf.path(), family->architecture)};
  }
  params->shapes.push_back(prediction_shape(*params, gguf));
  const int32_t layer = params->layers;
  return Builder(*family, std::move(*params), source.config, &gguf, diags, ctx, layer).run();
}

Result<ir::ModuleGraph> build_head_graph(const input::ModelSource& head, const DraftHead& facts,
                                         const ir::ModelFacts& model, DiagSink& diags,
                                         int64_t ctx) {
  const Family* family = KTX_TRY(pick_architecture(head.config));
  std::optional<HyperParams> params = read_hyper_params(*family, head.config, diags);
  if (!params) return Error{fmt::format("{}: no head can be made of its keys", head.gguf.path())};
  params->vocab = model.vocab;
  params->context = model.context_length;  // it was trained with less, and drafts beyond it too
  params->given_width = std::ssize(facts.layers) * model.hidden;
  params->given_norm = facts.given_norm;
  params->normed_stream = facts.normed_stream;
  params->draft_vocab = std::ssize(facts.tokens);
  return Builder(*family, std::move(*params), head.config, &head.gguf, diags, ctx, 0).run();
}

Result<ir::ModuleGraph> build_tower_graph(const input::ModelSource& tower, DiagSink& diags) {
  const Family* family = KTX_TRY(pick_architecture(tower.config));
  std::optional<HyperParams> params = read_hyper_params(*family, tower.config, diags);
  if (!params) {
    return Error{fmt::format("{}: no tower can be made of its keys", tower.gguf.path())};
  }
  return Builder(*family, std::move(*params), tower.config, &tower.gguf, diags, 0, 0).run();
}

Result<ir::ModuleGraph> build_graph(const input::HfConfig& config, DiagSink& diags, int64_t ctx) {
  return build_graph(config, nullptr, diags, ctx);
}

Result<ir::ModuleGraph> build_graph(const input::ModelSource& source, DiagSink& diags,
                                    int64_t ctx) {
  return build_graph(source.config, &source.gguf, diags, ctx);
}

}  // namespace ktx::arch

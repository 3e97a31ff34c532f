#include "lib/arch/row_shapes.h"

#include <cmath>

namespace ktx::arch {
namespace {

using families::QkNormKind;
using ir::Role;

// torch.nn.LayerNorm's in the models' code; no config says it.
constexpr float kIndexNormEps = 1e-6F;

float inverse_root(int64_t x) {
  return static_cast<float>(1 / std::sqrt(static_cast<double>(x)));
}

// A draft head's attention reads the token's embedding and the stream, one behind the other.
int64_t attention_input(const HyperParams& p) {
  return p.hidden * (p.given_width > 0 && p.image_size == 0 ? 2 : 1);
}

int32_t value_head(const LayerShape& layer, const HyperParams& p) {
  return p.value_head > 0 ? p.value_head : layer.head_dim;
}

// The indexer has a compressor of its own, or makes pools of positions.
ir::CompressorInfo compressor(Role role, const LayerShape& layer, const HyperParams& p) {
  if (p.index_pool > 0) return {p.index_dim, p.index_pool, false};
  return {role == Role::Indexer ? p.index_dim : layer.head_dim, layer.every, layer.indexer};
}

// Squares of patches become one patch before the projector's linears.
bool merged(const HyperParams& p) {
  return p.image_unfold != Unfold::Patches;
}

ir::LinearInfo linear(Role role, Role parent, const LayerShape& layer, const HyperParams& p) {
  const bool mla = p.kv_lora_rank > 0;
  const int64_t heads = layer.heads;
  const int64_t q_width = heads * (mla ? p.nope_dim + p.rope_dim : layer.head_dim);
  const int64_t kv_width = int64_t{layer.kv_heads} * layer.head_dim;
  const int32_t value_dim = value_head(layer, p);
  const int64_t mlp_width = parent == Role::SharedMlp ? p.shared_width : layer.mlp_width;
  if (parent == Role::DeltaNet && p.delta_net.by_channel) {
    const bool projects = role == Role::QProj || role == Role::KProj || role == Role::VProj;
    if (projects) return {p.hidden, p.delta_net.width()};
  }
  switch (role) {
    case Role::DeltaForgetAProj:
    case Role::DeltaGateAProj:
      return {p.hidden, p.delta_net.head_dim};
    case Role::DeltaForgetBProj:
    case Role::DeltaGateBProj:
      return {p.delta_net.head_dim, p.delta_net.width()};
    case Role::StreamsDownProj:
      return {p.streams * p.hidden, p.stream_rank};
    case Role::StreamsUpProj:
      return {p.stream_rank, p.streams * p.hidden};
    case Role::StreamsGiveProj:
      return {p.streams * p.hidden, p.streams};
    case Role::NgramKeyProj:
      return {p.ngrams.rows() * p.ngram_width, p.streams * p.hidden};
    case Role::NgramValueProj:
      return {p.ngrams.rows() * p.ngram_width, p.hidden};
    case Role::AltUpRouter:
      return {p.hidden, p.streams};
    case Role::AltUpPredictProj:
      return {p.streams, int64_t{p.streams} * p.streams};
    case Role::AltUpCorrectProj:
      return {p.streams, p.streams};
    case Role::AltUpEmbedProj:
    case Role::AltUpUnembedProj:
      return {p.hidden, (p.streams - 1) * p.hidden};
    case Role::LaurelDownProj:
      return {p.hidden, p.laurel_rank};
    case Role::LaurelUpProj:
      return {p.laurel_rank, p.hidden};
    case Role::ShortConvProj:
      return {p.hidden, 3 * p.hidden};
    case Role::SsmParamsProj:
      return {p.selective_scan.channels, p.selective_scan.params()};
    case Role::SsmStepProj:
      return {p.selective_scan.step_rank, p.selective_scan.channels};
    case Role::SsmInProj:
      if (parent == Role::SelectiveScan) return {p.hidden, int64_t{2} * p.selective_scan.channels};
      return {p.hidden, p.state_space.projected()};
    case Role::QProj:
      return {attention_input(p), q_width * (p.gated_attention ? 2 : 1)};
    case Role::AttentionGateProj:
      if (mla && !p.head_gates) return {p.hidden, heads * p.value_dim};
      return {p.hidden, p.head_gates ? heads : q_width};
    case Role::DeltaQkvProj:
      return {p.hidden, p.delta_net.channels()};
    case Role::DeltaGateProj:
      return {p.hidden, p.delta_net.width()};
    case Role::DeltaBaProj:
      return {p.hidden, 2 * int64_t{p.delta_net.value_heads}};
    case Role::DeltaAProj:
      if (p.delta_net.by_channel) return {p.hidden, p.delta_net.width()};
      return {p.hidden, p.delta_net.value_heads};
    case Role::DeltaBProj:
      return {p.hidden, p.delta_net.value_heads};
    case Role::KProj:
      return {attention_input(p), kv_width};
    case Role::VProj:
      return {attention_input(p), int64_t{layer.kv_heads} * value_dim,
              p.qkv_bias ? 1 : p.value_scale};
    case Role::QkvProj:
      return {p.hidden, q_width + 2 * kv_width};
    case Role::GateUpProj:
      return {p.hidden, 2 * mlp_width};
    case Role::QAProj:
      return {p.hidden, p.q_lora_rank};
    case Role::IndexQProj:
      return {mla || p.output_groups > 0 ? p.q_lora_rank : p.hidden,
              int64_t{p.index_heads} * p.index_dim};
    case Role::CompressorKvProj:
    case Role::CompressorGateProj:
      return {p.hidden, compressor(parent, layer, p).channels()};
    case Role::OAProj:
      return {q_width / p.output_groups, int64_t{p.output_groups} * p.output_rank};
    case Role::IndexKProj:
      return {p.hidden, p.index_dim};
    case Role::IndexWeightsProj:
      return {p.hidden, p.index_heads};
    case Role::QBProj:
      return {p.q_lora_rank, q_width};
    case Role::KvAProj:
      return {p.hidden, p.kv_lora_rank + p.rope_dim};
    case Role::KvBProj:
      return {p.kv_lora_rank, heads * (p.nope_dim + p.value_dim)};
    case Role::OProj:
      if (parent == Role::DeltaNet) return {p.delta_net.width(), p.hidden};
      if (parent == Role::StateSpace) return {p.state_space.width(), p.hidden};
      if (parent == Role::SelectiveScan) return {p.selective_scan.channels, p.hidden};
      if (parent == Role::ShortConv) return {p.hidden, p.hidden};
      if (parent == Role::CompressedAttention) {
        return {int64_t{p.output_groups} * p.output_rank, p.hidden};
      }
      // The factor of values, and of their biases.
      return {heads * (mla ? p.value_dim : value_dim), p.hidden, p.qkv_bias ? p.value_scale : 1};
    case Role::GateProj:
    case Role::UpProj:
      return {p.hidden, mlp_width};
    case Role::DownProj:
      return {mlp_width, p.hidden};
    case Role::LatentDownProj:
      return {p.hidden, p.expert_io()};
    case Role::LatentUpProj:
      return {p.expert_io(), p.hidden};
    case Role::SharedGate:
      return {p.hidden, 1};
    case Role::LayerInputsProj:  // its norm is of each layer's part, whose size the factor changes
      return {p.hidden, int64_t{p.layers} * p.layer_input_width, inverse_root(p.hidden)};
    case Role::LayerInputGate:
      return {p.hidden, p.layer_input_width};
    case Role::LayerInputProj:
      return {p.layer_input_width, p.hidden};
    case Role::PredictionProj:
      return {2 * p.hidden, p.hidden};
    case Role::PatchEmbedding:
    case Role::GivenProj:
      return {p.given_width, p.hidden};
    case Role::Head:
      return {p.hidden, p.draft_vocab > 0 ? p.draft_vocab : p.vocab};
    case Role::ScoreDense:
      return {p.hidden, p.hidden};
    case Role::ScoreHead:
      return {p.hidden, p.scores};
    case Role::ImageMergeProj:
      return {p.image_square(), p.hidden};
    case Role::ImageSecondProj:
      return {merged(p) ? p.image_width : p.image_square(), p.image_width};
    case Role::ImageFirstProj:
      if (!merged(p)) return {p.image_square(), p.image_square()};
      return {p.hidden, p.image_width};
    case Role::ImageProj:
      return {p.hidden, p.image_width};
    case Role::TextUpProj:
      return {p.hidden, p.text_dense};
    case Role::TextDownProj:
      return {p.text_dense, p.hidden};
    default:
      return {};
  }
}

ir::NormInfo norm(Role role, Role parent, const LayerShape& layer, const HyperParams& p) {
  int64_t width = p.hidden;
  if (role == Role::ImagePartNorm) width = p.image_square();
  if (role == Role::CompressorNorm) width = compressor(parent, layer, p).dim;
  if (role == Role::StreamsNorm && p.stream_rank == 0) width = p.hidden * p.streams;
  if ((role == Role::StreamsNorm && p.stream_rank > 0) || role == Role::NgramKeyNorm ||
      role == Role::NgramQueryNorm || role == Role::NgramConvNorm) {
    return {p.hidden, p.norm_eps, 1, false, p.streams};
  }
  if (role == Role::QNorm || role == Role::KNorm) {
    const int32_t heads = role == Role::QNorm ? layer.heads : layer.kv_heads;
    width = layer.head_dim * (p.qk_norms == QkNormKind::Row ? int64_t{heads} : 1);
    return {width, p.norm_eps, 1, false, p.qk_norms == QkNormKind::EachHead ? heads : 1};
  }
  if (role == Role::QRotatedNorm || role == Role::KRotatedNorm) width = layer.head_dim;
  if (role == Role::QANorm || role == Role::KvANorm) {
    return {role == Role::QANorm ? p.q_lora_rank : p.kv_lora_rank,
            p.latent_norm_eps > 0 ? p.latent_norm_eps : p.norm_eps};
  }
  if (role == Role::AttentionInnerNorm) width = int64_t{layer.heads} * value_head(layer, p);
  if (role == Role::MlpInnerNorm) width = layer.mlp_width;
  if (role == Role::DeltaNorm) width = p.delta_net.head_dim;
  if (role == Role::LatentNorm) width = p.expert_io();
  if (role == Role::GivenNorm) width = p.given_width;
  if (role == Role::VNorm) width = layer.head_dim;
  if (role == Role::SsmStepNorm || role == Role::SsmInputNorm || role == Role::SsmOutputNorm) {
    const bool steps = role == Role::SsmStepNorm;
    return {steps ? p.selective_scan.step_rank : p.selective_scan.state_dim,
            p.mixer_norm_eps > 0 ? p.mixer_norm_eps : p.norm_eps};
  }
  if (role == Role::SsmNorm) {
    const int32_t groups = p.state_space.groups;
    return {p.state_space.width() / groups, p.norm_eps, 1, false, groups};
  }
  if (role == Role::AltUpRouterNorm) {
    return {width, p.norm_eps, static_cast<float>(1 / static_cast<double>(p.hidden))};
  }
  if (role == Role::RouterNorm) return {width, p.norm_eps, inverse_root(p.hidden)};
  if (role == Role::IndexQNorm) width = p.index_dim;
  if (role == Role::IndexKNorm) {
    if (p.kv_lora_rank > 0) return {p.index_dim, kIndexNormEps, 1, true};
    width = p.index_dim;
  }
  // The sum of this and the layer's embedding is divided by the root of two.
  if (role == Role::LayerInputsNorm) return {p.layer_input_width, p.norm_eps, inverse_root(2)};
  return {width, p.norm_eps};
}

ir::NormInfo norm_of(Role role, Role parent, const LayerShape& layer, const HyperParams& p) {
  ir::NormInfo info = norm(role, parent, layer, p);
  const bool post = role == Role::AttentionPostNorm || role == Role::MlpPostNorm;
  if (post && p.post_norm_eps > 0) info.eps = p.post_norm_eps;
  info.layer_norm = info.layer_norm || (p.layer_norms && role != Role::ImageNorm);
  return info;
}

// The second embedding is scaled by the root of its width, and halved in the sum with
// LayerInputsNorm's output.
ir::EmbeddingInfo embedding(Role role, const HyperParams& p) {
  if (role == Role::Embedding) return {p.vocab, p.hidden, p.embedding_scale};
  if (role == Role::PositionEmbedding) return {p.context, p.hidden};
  if (role == Role::GridEmbedding) return {int64_t{p.grid_side} * p.grid_side, p.hidden};
  if (role == Role::TypeEmbedding) return {p.text_types, p.hidden};
  if (role == Role::NgramTable) return {p.ngram_rows, p.ngram_width};
  const double half = p.layer_input_width / 2.0;
  return {p.vocab, int64_t{p.layers} * p.layer_input_width, static_cast<float>(std::sqrt(half))};
}

ir::RotaryInfo rotary(const RopeTable& rope, int32_t rotary_dim, const HyperParams& p) {
  const int32_t quarter = p.grid_rope ? rotary_dim / 4 : 0;
  return {rotary_dim,
          p.interleaved_rope,
          static_cast<float>(rope.mscale),
          rope.inv_freq,
          rope.context,
          p.grid_rope ? quarter : p.rope_lines,
          p.grid_rope ? quarter : p.rope_columns,
          !p.grid_rope && (p.rope_lines > 0 || p.rope_columns > 0)};
}

ir::CompressedAttentionInfo compressed_attention(const LayerShape& layer, const HyperParams& p) {
  ir::CompressedAttentionInfo info;
  info.heads = layer.heads;
  info.head_dim = layer.head_dim;
  info.q_lora_rank = p.q_lora_rank;
  info.rope_dim = p.rope_dim;
  info.scale = inverse_root(layer.head_dim);
  info.window = layer.window;
  info.groups = p.output_groups;
  info.group_rank = p.output_rank;
  info.every = layer.every;
  if (layer.indexer) {
    info.top_k = p.index_top_k;
    info.index_heads = p.index_heads;
    info.index_dim = p.index_dim;
  }
  return info;
}

ir::StreamsInfo streams(Role role, const HyperParams& p) {
  const bool head = role == Role::HeadStreams;
  return {p.streams, head ? 0 : p.stream_iterations, p.stream_eps,
          p.hidden,  head && p.mean_of_streams,      p.stream_rank};
}

ir::ModuleInfo attention(Role role, const LayerShape& layer, const HyperParams& p,
                         const RopeTable& rope) {
  if (role == Role::Attention) {
    const double usual = 1 / std::sqrt(double(layer.head_dim));
    ir::AttentionInfo info;
    info.heads = layer.heads;
    info.kv_heads = layer.kv_heads;
    info.head_dim = layer.head_dim;
    info.scale = static_cast<float>(p.attention_scale > 0 ? p.attention_scale
                                    : p.whole_scale       ? usual * usual
                                                          : usual);
    info.window = layer.window;
    info.softcap = p.attention_softcap;
    info.alibi = p.attention_alibi;
    info.qkv_limit = p.qkv_limit;
    info.rotated = layer.rotated;
    info.keys_of_layer = layer.keys_of_layer;
    info.keys_as_values = layer.keys_as_values;
    info.grown = p.grown_queries;
    if (!layer.rotated && p.grown_unrotated.growth > 0) {
      info.grown = p.grown_unrotated;
      info.grown_by_count = true;
    }
    info.chunked = layer.window > 0 && p.chunked_windows;
    info.gated = p.gated_attention;
    info.gate = p.gate;
    info.value_dim = p.value_head == layer.head_dim ? 0 : p.value_head;
    info.whole_text = p.encoder;
    if (layer.indexer) {
      info.top_k = p.index_top_k;
      info.index_heads = p.index_pool > 0 ? p.index_heads : 0;
      info.index_dim = p.index_dim;
      info.index_block = p.index_pool > 0 ? p.index_pool : p.index_block;
      info.index_local = p.index_local;
    }
    return info;
  }
  if (role == Role::CompressedAttention) return compressed_attention(layer, p);
  if (role == Role::DeltaNet) return p.delta_net;
  if (role == Role::StateSpace) return p.state_space;
  if (role == Role::SelectiveScan) return p.selective_scan;
  if (role == Role::ShortConv) return ir::ShortConvInfo{p.hidden, p.short_conv_taps};
  const double scale = rope.softmax_mscale / std::sqrt(double(p.nope_dim + p.rope_dim));
  return ir::MlaInfo{layer.heads,
                     p.q_lora_rank,
                     p.kv_lora_rank,
                     p.nope_dim,
                     p.rope_dim,
                     p.value_dim,
                     static_cast<float>(scale),
                     p.grown_queries,
                     p.index_top_k,
                     p.index_heads,
                     p.index_dim,
                     p.interleaved_index,
                     layer.positions_of_layer,
                     layer.rotated,
                     p.index_pool};
}

// Units of layers that clamp what their activation gives.
GluAttrs glu_of(const HyperParams& p, float limit) {
  if (limit <= 0) return p.glu;
  return {static_cast<int32_t>(Activation::SiluUpTo), limit};
}

}  // namespace

ir::ModuleInfo info_of(Role role, Role parent, int32_t layer, const HyperParams& p,
                       const RopeTable& rope, const RopeTable& local_rope) {
  const LayerShape& shape = p.shape(layer);
  if (role == Role::AttentionStreams || role == Role::MlpStreams || role == Role::HeadStreams) {
    return streams(role, p);
  }
  if (role == Role::ImageProjector || role == Role::ImagePart) {
    return ir::PoolInfo{p.image_pool, static_cast<int32_t>(p.image_unfold)};
  }
  if (role == Role::NgramPart) {
    return ir::NgramPartInfo{p.streams, p.hidden, p.ngram_taps, p.ngrams.size};
  }
  if (role == Role::Ngrams) return p.ngrams;
  if (role == Role::AltUp) return ir::AltUpInfo{p.streams, p.active_stream, p.hidden};
  if (role == Role::AttentionSources || role == Role::MlpSources || role == Role::HeadSources) {
    return ir::SourcesInfo{p.source_block, p.norm_eps, p.hidden};
  }
  const bool entries = shape.every > 0 || p.index_pool > 0;
  if (role == Role::Compressor || (role == Role::Indexer && entries)) {
    return compressor(role, shape, p);
  }
  switch (ir::kind_of(role)) {
    case ir::Kind::Linear:
      return linear(role, parent, shape, p);
    case ir::Kind::Embedding:
      return embedding(role, p);
    case ir::Kind::Norm:
      return norm_of(role, parent, shape, p);
    case ir::Kind::Rotary:
      // Compressors have the scaled rotation, layers without one the model's.
      return role == Role::LocalRotary || (p.output_groups > 0 && parent == Role::Model)
                 ? rotary(local_rope, p.local_rotary_dim, p)
                 : rotary(rope, p.rotary_dim, p);
    case ir::Kind::Attention:
      return attention(role, shape, p, rope);
    case ir::Kind::Mlp:
      return ir::MlpInfo{p.hidden,
                         role == Role::SharedMlp ? p.shared_width : shape.mlp_width,
                         glu_of(p, shape.shared_limit),
                         p.unit,
                         shape.sparsity,
                         shape.xielu.limit,
                         shape.xielu.rise,
                         shape.xielu.fall,
                         shape.xielu.slope};
    case ir::Kind::Router:
      return ir::RouterInfo{p.router, p.router_scales_input, p.router_reads_stream};
    case ir::Kind::Experts:
      return ir::ExpertsInfo{p.experts, p.router.top_k, p.expert_io(), p.expert_width,
                             glu_of(p, shape.glu_limit)};
    default:
      return std::monostate();
  }
}

ParamShape shape_of(std::string_view name, const ir::ModuleInfo& info, int32_t layer,
                    const HyperParams& p) {
  const int64_t heads = p.shape(layer).heads;
  if (const auto* x = std::get_if<ir::LinearInfo>(&info)) {
    if (name == "bias") return {x->out};
    if (name == "streams") return {x->in, x->in, x->out / x->in};
    if (name == "transposed") return {x->out, x->in};
    if (name == "gate" || name == "up") return {x->in, x->out / 2};
    if (name == "k_b") return {p.nope_dim, p.kv_lora_rank, heads};
    if (name == "v_b") return {p.kv_lora_rank, p.value_dim, heads};
    return {x->in, x->out};
  }
  if (const auto* x = std::get_if<ir::EmbeddingInfo>(&info)) return {x->hidden, x->vocab};
  if (const auto* x = std::get_if<ir::NormInfo>(&info)) return {x->width, x->groups};
  if (const auto* x = std::get_if<ir::ExpertsInfo>(&info)) {
    if (name == "down") return {x->width, x->hidden, x->experts};
    if (name == "gate_bias" || name == "up_bias") return {x->width, x->experts};
    if (name == "down_bias") return {x->hidden, x->experts};
    if (name == "gate_factors" || name == "up_factors") return {x->experts};
    return {x->hidden, x->width, x->experts};
  }
  if (const auto* x = std::get_if<ir::DeltaNetInfo>(&info)) {
    if (name == "conv") return {x->taps, x->channels()};
    if (name.starts_with("conv_")) return {x->taps, x->width()};
    return {name == "dt_bias" && x->by_channel ? x->width() : x->value_heads};
  }
  if (const auto* x = std::get_if<ir::ShortConvInfo>(&info)) return {x->taps, x->width};
  if (const auto* x = std::get_if<ir::SelectiveScanInfo>(&info)) {
    if (name == "conv") return {x->taps, x->channels};
    if (name == "decay") return {x->state_dim, x->channels};
    return {x->channels};
  }
  if (const auto* x = std::get_if<ir::StateSpaceInfo>(&info)) {
    if (name == "conv") return {x->taps, x->channels()};
    return {name == "conv_bias" ? x->channels() : x->heads};
  }
  if (const auto* x = std::get_if<ir::CompressorInfo>(&info)) {
    if (name == "pool_gate") return {p.hidden, x->channels()};
    return {x->channels(), x->every};
  }
  if (const auto* x = std::get_if<ir::AltUpInfo>(&info)) return {x->hidden};
  if (const auto* x = std::get_if<ir::SourcesInfo>(&info)) return {x->hidden};
  if (const auto* x = std::get_if<ir::NgramPartInfo>(&info)) {
    return {x->taps, x->streams * x->hidden};
  }
  if (const auto* x = std::get_if<ir::StreamsInfo>(&info)) {
    const StreamWeightsAttrs attrs = x->attrs();
    if (name == "fn") return {x->streams * x->hidden, attrs.width()};
    return {name == "scale" ? attrs.scales() : attrs.width()};
  }
  if (name == "sinks") return {heads};
  if (name == "table") return {p.router.top_k, p.vocab};
  if (name == "bias" || name == "correction_bias" || name == "factors") return {p.experts};
  return {p.hidden, p.experts};  // of a router
}

}  // namespace ktx::arch

#include "tools/dev/synth/synth_model.h"

#include <fmt/format.h>

#include <cmath>

#include "lib/support/strings.h"
#include "tools/dev/synth/model_tensors.h"

namespace ktx::synth {
namespace {

// What an encoder has instead of a head.
void add_encoder_tensors(const ModelShape& s, TensorMaker& t) {
  if (const auto types = s.config.i64("type_vocab_size").value_or(0); types > 0) {
    t.matrix("token_types.weight", -1, {s.hidden, types}, kEmbeddingSigma);
  }
  if (s.family->has_role(ir::Role::EmbeddingNorm)) {
    t.ones("token_embd_norm.weight", s.hidden);
    if (s.always_has(ir::Role::EmbeddingNorm, "bias")) {
      t.norm_bias("token_embd_norm.weight", s.hidden);
    }
  }
  if (s.family->has_role(ir::Role::FinalNorm)) t.ones("output_norm.weight", s.hidden);
  if (const auto width = s.config.i64("text_dense_width").value_or(0); width > 0) {
    t.matrix("dense_2.weight", -1, {s.hidden, width});
    t.matrix("dense_3.weight", -1, {width, s.hidden});
  }
  if (s.scores() == 0) return;
  if (s.flag("score_dense").value_or(false)) {
    t.matrix("cls.weight", -1, {s.hidden, s.hidden});
    t.noise("cls.bias", s.hidden, kSigma);
  }
  t.matrix("cls.output.weight", -1, {s.hidden, s.scores()});
  t.noise("cls.output.bias", s.scores(), kSigma);
}

// What a layer has beside attention and feed-forward part.
void add_altup(const ModelShape& s, TensorMaker& t, int64_t layer, const std::string& blk) {
  t.matrix(blk + "laurel_l.weight", layer, {s.hidden, s.laurel_rank});
  t.matrix(blk + "laurel_r.weight", layer, {s.laurel_rank, s.hidden});
  t.norm(ir::Role::LaurelNorm, layer, s.hidden);
  // Its input is divided by the width.
  t.noise(blk + "altup_router.weight", {s.hidden, s.streams},
          0.1f * std::sqrt(static_cast<float>(s.hidden)));
  t.norm(ir::Role::AltUpRouterNorm, layer, s.hidden);
  t.noise(blk + "altup_predict_coef.weight", {s.streams, s.streams * s.streams}, 0.02f);
  t.noise(blk + "altup_correct_coef.weight", {s.streams, s.streams}, 0.02f);
  t.noise(blk + "altup_correct_scale.weight", s.hidden, 0.02f, 1);
}

// The weights of hyper-connections.
void add_streams(const ModelShape& s, TensorMaker& t, const std::string& name, int64_t width,
                 int64_t scales) {
  const int64_t in = s.streams * s.hidden;
  const uint64_t seed = t.next_seed();
  const float sigma =
      s.options.strong ? kStrongProduct / std::sqrt(static_cast<float>(in)) : kSigma;
  t.values(name + "_fn.weight", {in, width}, [seed, sigma](uint64_t i) {
    return sigma * normal_from_bits(mix_bits(seed ^ mix_bits(i)));
  });
  t.noise(name + "_base.weight", width, 0.05f);
  t.noise(name + "_scale.weight", scales, 0.02f, 1);
}

// The weights of gates: what a part reads, and what each stream gets of the part's output.
void add_stream_gates(const ModelShape& s, TensorMaker& t, int64_t layer, const std::string& name,
                      bool gives) {
  const int64_t all = s.streams * s.hidden;
  t.noise(name + "_norm.weight", all, 0.02f, 1);
  t.matrix(name + "_down.weight", layer, {all, s.stream_rank});
  t.matrix(name + "_up.weight", layer, {s.stream_rank, all});
  if (gives) t.matrix(name + "_inject.weight", layer, {all, s.streams});
}

void add_ngrams(const ModelShape& s, TensorMaker& t, int64_t layer, const std::string& blk) {
  const int64_t all = s.streams * s.hidden, rows = s.ngrams.rows() * s.ngram_width;
  t.matrix(blk + "ple_key.weight", layer, {rows, all});
  t.matrix(blk + "ple_value.weight", layer, {rows, s.hidden});
  for (const char* part : {"key", "query", "conv"}) {
    t.noise(fmt::format("{}ple_norm_{}.weight", blk, part), all, 0.02f, 1);
  }
  t.noise(blk + "ple_conv1d.weight", {s.ngram_taps, all}, 0.05f);
}

// The weights of an attention residual: products with the normed stream. With strong weights, some
// of the products decide.
void add_score(const ModelShape& s, TensorMaker& t, const std::string& name) {
  t.noise(name + "_score.weight", s.hidden, 0.15f / std::sqrt(static_cast<float>(s.hidden)));
}

void add_layer(const ModelShape& s, TensorMaker& t, int64_t layer) {
  const std::string blk = fmt::format("blk.{}.", layer);
  t.norm(ir::Role::AttentionNorm, layer, s.hidden);
  if (s.by_channel && s.has_delta_net(layer)) {
    add_channel_delta_net(s, t, layer, blk);
  } else if (s.is_mla()) {
    add_mla(s, t, layer, blk);
  } else if (s.is_compressed()) {
    add_compressed_attention(s, t, layer, blk);
  } else if (s.has_delta_net(layer)) {
    add_delta_net(s, t, layer, blk);
  } else if (s.has_attention(layer)) {
    add_attention(s, t, layer, blk);
  }
  if (s.has_state_space(layer)) add_state_space(s, t, layer, blk);
  if (s.scan_channels > 0 && !s.has_attention(layer)) add_selective_scan(s, t, layer, blk);
  if (s.conv_taps > 0 && !s.has_attention(layer)) add_short_conv(s, t, layer, blk);
  t.norm(ir::Role::AttentionPostNorm, layer, s.hidden);
  t.norm(ir::Role::AttentionSumNorm, layer, s.hidden);
  if (!s.family->one_part) t.norm(ir::Role::MlpNorm, layer, s.hidden);
  t.norm(ir::Role::SideMlpNorm, layer, s.hidden);
  t.norm(ir::Role::MlpInnerNorm, layer, s.of_layer(s.ffn, layer));
  if (s.is_moe(layer)) add_experts(s, t, layer, blk);
  if (s.has_feed_forward(layer) && (!s.is_moe(layer) || s.beside_dense())) {
    const int64_t width = s.of_layer(s.ffn, layer);
    const bool fused = s.has_param(ir::Role::GateUpProj, "weight");
    if (!fused && !s.family->gateless) t.matrix(blk + "ffn_gate.weight", layer, {s.hidden, width});
    t.matrix(blk + "ffn_up.weight", layer, {s.hidden, fused ? 2 * width : width});
    t.matrix(blk + "ffn_down.weight", layer, {width, s.hidden}, kResidualSigma);
    if (s.always_has(ir::Role::GateProj, "bias")) t.noise(blk + "ffn_gate.bias", width, kSigma);
    if (s.always_has(ir::Role::UpProj, "bias")) t.noise(blk + "ffn_up.bias", width, kSigma);
    if (s.always_has(ir::Role::DownProj, "bias")) t.noise(blk + "ffn_down.bias", s.hidden, kSigma);
  }
  t.norm(ir::Role::MlpPostNorm, layer, s.hidden);
  t.norm(ir::Role::MlpSumNorm, layer, s.hidden);
  if (layer == s.ngram_layer) add_ngrams(s, t, layer, blk);
  for (const char* part : {"hc_attn", "hc_ffn"}) {
    if (s.stream_rank > 0) {
      add_stream_gates(s, t, layer, blk + part, true);
    } else if (s.streams > 0 && !s.has_altup()) {
      add_streams(s, t, blk + part, s.streams * (s.streams + 2), 3);
    }
  }
  if (s.has_altup()) add_altup(s, t, layer, blk);
  if (s.family->has_role(ir::Role::HeadSources)) {
    for (const char* part : {"attn", "ffn"}) add_score(s, t, fmt::format("{}{}_res", blk, part));
  }
  if (s.layer_input > 0) {
    t.matrix(blk + "inp_gate.weight", layer, {s.hidden, s.layer_input});
    t.matrix(blk + "proj.weight", layer, {s.layer_input, s.hidden}, kResidualSigma);
    t.norm(ir::Role::LayerInputPostNorm, layer, s.hidden);
  }
  if (s.has_param(ir::Role::Layer, "output_scale")) {
    const float scale = s.options.strong ? 0.5f + 0.25f * static_cast<float>(layer % 3) : 1;
    t.values(blk + "layer_output_scale.weight", {1}, [scale](uint64_t) { return scale; });
  }
}

// What it reads is the token's own embedding for the most part, and its head is the model's: its
// draft tokens are often those of the model, where an embedding decides (not with strong
// weights).
void add_mtp(const ModelShape& s, TensorMaker& t, int64_t layer) {
  add_layer(s, t, layer);
  const std::string blk = fmt::format("blk.{}.nextn.", layer);
  const uint64_t seed = t.next_seed();
  const float sigma = s.options.strong ? kStrongProduct / std::sqrt(2.f * s.hidden) : kSigma;
  t.values(blk + "eh_proj.weight", {2 * s.hidden, s.hidden},
           [seed, sigma, width = static_cast<uint64_t>(2 * s.hidden)](uint64_t i) {
             const float noise = sigma * normal_from_bits(mix_bits(seed ^ mix_bits(i)));
             return i % width == i / width ? 1 + noise : noise;
           });
  t.ones(blk + "enorm.weight", s.hidden);
  t.ones(blk + "hnorm.weight", s.hidden);
  t.ones(blk + "shared_head_norm.weight", s.hidden);
}

void add_tensors(const ModelShape& s, TensorMaker& t) {
  if (s.family->has_role(ir::Role::PositionEmbedding)) {
    const int64_t positions = s.config.i64("max_position_embeddings").value_or(1);
    t.matrix("position_embd.weight", -1, {s.hidden, positions}, kEmbeddingSigma);
  }
  if (s.family->encoder) {
    add_encoder_tensors(s, t);
  } else {
    if (!s.tied && s.scores() == 0) t.matrix("output.weight", -1, {s.hidden, s.vocab});
    if (s.always_has(ir::Role::Head, "bias")) t.noise("output.bias", s.vocab, kSigma);
    const bool plain =
        s.stream_rank > 0 || (!s.has_param(ir::Role::FinalNorm, "weight") && s.conv_taps == 0);
    if (!plain) t.ones(s.conv_taps > 0 ? "token_embd_norm.weight" : "output_norm.weight", s.hidden);
    if (s.always_has(ir::Role::FinalNorm, "bias")) t.norm_bias("output_norm.weight", s.hidden);
    if (s.always_has(ir::Role::EmbeddingNorm, "bias")) {
      t.ones("token_embd_norm.weight", s.hidden);
      t.norm_bias("token_embd_norm.weight", s.hidden);
    }
    if (s.scores() > 0) t.matrix("cls.output.weight", -1, {s.hidden, s.scores()});
  }
  if (s.is_compressed()) add_streams(s, t, "output_hc", s.streams, 1);
  if (s.stream_rank > 0) add_stream_gates(s, t, -1, "output_hc", false);
  if (s.ngram_layer >= 0) {
    t.matrix("per_layer_token_embd.weight", -1, {s.ngram_width, s.ngram_rows}, kEmbeddingSigma);
  }
  if (s.family->has_role(ir::Role::HeadSources)) add_score(s, t, "output_res");
  for (const char* projections : {"altup_proj.weight", "altup_unembd_proj.weight"}) {
    if (s.has_altup()) t.matrix(projections, -1, {s.hidden, s.hidden, s.streams - 1});
  }
  if (s.config.string("rope_scaling.rope_type") == "llama3") add_rope_freqs(s, t);
  if (s.global_head_dim > 0) add_proportions(s, t);
  if (s.config.string("rope_scaling.rope_type") == "longrope") {
    add_longrope(s, t, "short");
    add_longrope(s, t, "long");
  }
  t.matrix("token_embd.weight", -1, {s.hidden, s.vocab}, kEmbeddingSigma);
  if (s.layer_input > 0) {
    t.matrix("per_layer_token_embd.weight", -1, {s.layers * s.layer_input, s.vocab},
             kEmbeddingSigma);
    t.matrix("per_layer_model_proj.weight", -1, {s.hidden, s.layers * s.layer_input});
    t.ones("per_layer_proj_norm.weight", s.layer_input);
  }
  for (int64_t layer = 0; layer < s.layers; ++layer) add_layer(s, t, layer);
  if (s.options.mtp) add_mtp(s, t, s.layers);
}

}  // namespace

Result<input::GgufWriter> synthesise(const input::HfConfig& config, const SynthOptions& options) {
  const auto mix = find_type_mix(options.types);
  if (!mix) {
    const auto names = type_mix_names();
    return Error{fmt::format("type mix '{}' is unknown{} (known are {})", options.types,
                             did_you_mean(options.types, names), join(names, ", "))};
  }
  const ModelShape shape = KTX_TRY(ModelShape::read(config, options));
  TensorMaker maker(shape, *mix);
  input::GgufWriter& writer = maker.writer;
  KTX_TRY(add_metadata(shape, maker));
  KTX_TRY(add_vocabulary(writer, shape.vocab, options.vocabulary));
  writer.add_u32("general.quantization_version", 2);
  writer.add_u32("general.file_type", mix->file_type);
  add_tensors(shape, maker);
  return std::move(writer);
}

}  // namespace ktx::synth

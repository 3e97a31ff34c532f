// Stretches of rows and keys of models with layer norm and of those whose feed-forward part has no
// gate. Data only, as in tree_rows.h and key_rows.h.
#pragma once

#include "lib/families/key_rows.h"
#include "lib/families/tree_rows.h"

namespace ktx::families {

inline constexpr ClassRow kTorchLayerNorm{"torch.nn.modules.normalization.LayerNorm",
                                          "torch.nn.LayerNorm LayerNorm"};

// Biases that every model of the family has.
inline constexpr ModuleRow kBiasedQkv[] = {
    {Role::QProj,
     "L.self_attn.q_proj",
     &kLinear,
     When::Always,
     {{"weight", "B.attn_q.weight"}, {"bias", "B.attn_q.bias"}}},
    {Role::KProj,
     "L.self_attn.k_proj",
     &kLinear,
     When::Always,
     {{"weight", "B.attn_k.weight"}, {"bias", "B.attn_k.bias"}}},
    {Role::VProj,
     "L.self_attn.v_proj",
     &kLinear,
     When::Always,
     {{"weight", "B.attn_v.weight"}, {"bias", "B.attn_v.bias"}}},
};
inline constexpr ModuleRow kBiasedOutput[] = {
    {Role::OProj,
     "L.self_attn.o_proj",
     &kLinear,
     When::Always,
     {{"weight", "B.attn_output.weight"}, {"bias", "B.attn_output.bias"}}},
};
// act(up(x)) by the names that Llama's part has.
inline constexpr ModuleRow kGatelessMlp[] = {
    {Role::Mlp, "L.mlp", &kMlp},
    {Role::UpProj,
     "L.mlp.up_proj",
     &kLinear,
     When::Always,
     {{"weight", "B.ffn_up.weight"}, {"bias", "B.ffn_up.bias", When::MlpBias}}},
    {Role::DownProj,
     "L.mlp.down_proj",
     &kLinear,
     When::Always,
     {{"weight", "B.ffn_down.weight"}, {"bias", "B.ffn_down.bias", When::MlpBias}}},
    {Role::Activation, "L.mlp.act_fn", &kSilu},
};

inline constexpr ModuleRow kBiasedLayerNorms[] = {
    {Role::AttentionNorm,
     "L.input_layernorm",
     &kTorchLayerNorm,
     When::Always,
     {{"weight", "B.attn_norm.weight"}, {"bias", "B.attn_norm.bias"}}},
    {Role::MlpNorm,
     "L.post_attention_layernorm",
     &kTorchLayerNorm,
     When::Always,
     {{"weight", "B.ffn_norm.weight"}, {"bias", "B.ffn_norm.bias"}}},
};
inline constexpr ModuleRow kBiasedFinalNorm[] = {
    {Role::FinalNorm,
     "model.norm",
     &kTorchLayerNorm,
     When::Always,
     {{"weight", "output_norm.weight"}, {"bias", "output_norm.bias"}}},
};

// kModelKeys with the other norm's epsilon.
inline constexpr ConfigKey kLayerNormModelKeys[] = {
    {"vocab_size", "vocab_size", KeyRead::Vocab, KeyKind::Count, KeyWeight::Structural, "", ""},
    {"max_position_embeddings", "context_length", KeyRead::Int, KeyKind::Count, KeyWeight::Plain,
     "", ""},
    {"layer_norm_eps", "attention.layer_norm_epsilon", KeyRead::Float, KeyKind::Positive,
     KeyWeight::Plain, "", "1e-5"},
    {"rope_theta", "rope.freq_base", KeyRead::Float, KeyKind::Positive, KeyWeight::Plain, "10000",
     "10000"},
};

}  // namespace ktx::families

// Stretches of rows and keys of models with layer norm and of those whose feed-forward part has no
// gate. Data only, as in tree_rows.h and key_rows.h.
#pragma once

#include "lib/families/key_rows.h"
#include "lib/families/tree_rows.h"

namespace ktx::families {

inline constexpr ClassRow kTorchLayerNorm{"torch.nn.modules.normalization.LayerNorm",
                                          "torch.nn.LayerNorm LayerNorm"};

constexpr ModuleRow layer_norm(Role role, const char* path, const char* tensor,
                               When when = When::Always) {
  return weighted(role, path, &kTorchLayerNorm, tensor, when, When::Always);
}

// Biases that every model of the family has.
inline constexpr ModuleRow kBiasedQkv[] = {
    linear(Role::QProj, "L.self_attn.q_proj", "B.attn_q.", When::Always, When::Always),
    linear(Role::KProj, "L.self_attn.k_proj", "B.attn_k.", When::Always, When::Always),
    linear(Role::VProj, "L.self_attn.v_proj", "B.attn_v.", When::Always, When::Always),
};
inline constexpr ModuleRow kBiasedOutput[] = {
    linear(Role::OProj, "L.self_attn.o_proj", "B.attn_output.", When::Always, When::Always),
};
// act(up(x)) by the names that Llama's part has.
inline constexpr ModuleRow kGatelessMlp[] = {
    {Role::Mlp, "L.mlp", &kMlp},
    linear(Role::UpProj, "L.mlp.up_proj", "B.ffn_up.", When::Always, When::MlpBias),
    linear(Role::DownProj, "L.mlp.down_proj", "B.ffn_down.", When::Always, When::MlpBias),
    {Role::Activation, "L.mlp.act_fn", &kSilu},
};

inline constexpr ModuleRow kBiasedLayerNorms[] = {
    layer_norm(Role::AttentionNorm, "L.input_layernorm", "B.attn_norm."),
    layer_norm(Role::MlpNorm, "L.post_attention_layernorm", "B.ffn_norm."),
};
inline constexpr ModuleRow kBiasedFinalNorm[] = {
    layer_norm(Role::FinalNorm, "model.norm", "output_norm."),
};

// kModelKeys with the other norm's epsilon.
inline constexpr ConfigKey kLayerNormModelKeys[] = {
    kVocabKey,
    longest_text(),
    positive("layer_norm_eps", "attention.layer_norm_epsilon", "", "1e-5"),
    positive("rope_theta", "rope.freq_base", "10000", "10000"),
};

}  // namespace ktx::families

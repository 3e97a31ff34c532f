// Stretches of module rows that several families share, and the classes in them.
// Data only; a family strings them together in registration order.
#pragma once

#include "lib/families/family.h"

namespace ktx::families {

using ir::Role;

// torch's own classes.
inline constexpr ClassRow kLinear{"torch.nn.modules.linear.Linear", "torch.nn.Linear Linear"};
inline constexpr ClassRow kEmbedding{"torch.nn.modules.sparse.Embedding",
                                     "torch.nn.Embedding Embedding"};
inline constexpr ClassRow kModuleList{"torch.nn.modules.container.ModuleList",
                                      "torch.nn.ModuleList ModuleList"};
inline constexpr ClassRow kSilu{
    "torch.nn.modules.activation.SiLU",
    "torch.nn.SiLU SiLU transformers.activations.SiLUActivation SiLUActivation"};

// Classes that every family has under its own prefix.
#define KTX_PRETRAINED                                                        \
  "K.{P}PreTrainedModel {P}PreTrainedModel T.{P}PreTrainedModel "             \
  "transformers.modeling_utils.PreTrainedModel transformers.PreTrainedModel " \
  "PreTrainedModel"
#define KTX_GENERATION                                                                     \
  " transformers.generation.utils.GenerationMixin transformers.generation.GenerationMixin" \
  " transformers.GenerationMixin GenerationMixin"
inline constexpr ClassRow kForCausalLM{"{P}ForCausalLM", "transformers.{P}ForCausalLM",
                                       KTX_PRETRAINED};
inline constexpr ClassRow kForCausalLMGenerating{"{P}ForCausalLM", "transformers.{P}ForCausalLM",
                                                 KTX_PRETRAINED KTX_GENERATION};
inline constexpr ClassRow kModel{"{P}Model", "transformers.{P}Model", KTX_PRETRAINED};
inline constexpr ClassRow kDecoderLayer{"{P}DecoderLayer"};
inline constexpr ClassRow kAttention{"{P}Attention"};
inline constexpr ClassRow kAttentionFlashSdpa{
    "{P}Attention", "{P}FlashAttention2 K.{P}FlashAttention2 {P}SdpaAttention K.{P}SdpaAttention"};
inline constexpr ClassRow kRotary{"{P}RotaryEmbedding"};
inline constexpr ClassRow kMlp{"{P}MLP"};
inline constexpr ClassRow kNorm{"{P}RMSNorm"};

inline constexpr ModuleRow kStem[] = {
    {Role::Model, "model", &kModel},
    {Role::Embedding,
     "model.embed_tokens",
     &kEmbedding,
     When::Always,
     {{"weight", "token_embd.weight"}}},
    {Role::LayerList, "model.layers", &kModuleList},
    {Role::Layer, "model.layers.{layer}", &kDecoderLayer},
};

inline constexpr ModuleRow kGqaProjections[] = {
    {Role::QProj,
     "L.self_attn.q_proj",
     &kLinear,
     When::Always,
     {{"weight", "B.attn_q.weight"}, {"bias", "B.attn_q.bias", When::QkvBias}}},
    {Role::KProj,
     "L.self_attn.k_proj",
     &kLinear,
     When::Always,
     {{"weight", "B.attn_k.weight"}, {"bias", "B.attn_k.bias", When::QkvBias}}},
    {Role::VProj,
     "L.self_attn.v_proj",
     &kLinear,
     When::Always,
     {{"weight", "B.attn_v.weight"}, {"bias", "B.attn_v.bias", When::QkvBias}}},
    {Role::OProj,
     "L.self_attn.o_proj",
     &kLinear,
     When::Always,
     {{"weight", "B.attn_output.weight"}, {"bias", "B.attn_output.bias", When::AttentionBias}}},
};
inline constexpr ModuleRow kQkNorms[] = {
    {Role::QNorm, "L.self_attn.q_norm", &kNorm, When::Always, {{"weight", "B.attn_q_norm.weight"}}},
    {Role::KNorm, "L.self_attn.k_norm", &kNorm, When::Always, {{"weight", "B.attn_k_norm.weight"}}},
};
inline constexpr ModuleRow kLayerRotary[] = {
    {Role::Rotary, "L.self_attn.rotary_emb", &kRotary},
};

inline constexpr ModuleRow kDenseMlp[] = {
    {Role::Mlp, "L.mlp", &kMlp, When::Dense},
    {Role::GateProj,
     "L.mlp.gate_proj",
     &kLinear,
     When::Dense,
     {{"weight", "B.ffn_gate.weight"}, {"bias", "B.ffn_gate.bias", When::MlpBias}}},
    {Role::UpProj,
     "L.mlp.up_proj",
     &kLinear,
     When::Dense,
     {{"weight", "B.ffn_up.weight"}, {"bias", "B.ffn_up.bias", When::MlpBias}}},
    {Role::DownProj,
     "L.mlp.down_proj",
     &kLinear,
     When::Dense,
     {{"weight", "B.ffn_down.weight"}, {"bias", "B.ffn_down.bias", When::MlpBias}}},
    {Role::Activation, "L.mlp.act_fn", &kSilu, When::Dense},
};
// The modules below "L.mlp.experts" of Qwen and DeepSeek.
inline constexpr ModuleRow kExpertParts[] = {
    {Role::Expert, "L.mlp.experts.{expert}", &kMlp, When::Moe},
    {Role::GateProj, "L.mlp.experts.{expert}.gate_proj", &kLinear, When::Moe, {{"gate"}}},
    {Role::UpProj, "L.mlp.experts.{expert}.up_proj", &kLinear, When::Moe, {{"up"}}},
    {Role::DownProj, "L.mlp.experts.{expert}.down_proj", &kLinear, When::Moe, {{"down"}}},
    {Role::Activation, "L.mlp.experts.{expert}.act_fn", &kSilu, When::Moe},
};

inline constexpr ModuleRow kLayerNorms[] = {
    {Role::AttentionNorm,
     "L.input_layernorm",
     &kNorm,
     When::Always,
     {{"weight", "B.attn_norm.weight"}}},
    {Role::MlpNorm,
     "L.post_attention_layernorm",
     &kNorm,
     When::Always,
     {{"weight", "B.ffn_norm.weight"}}},
};

inline constexpr ModuleRow kFinalNorm[] = {
    {Role::FinalNorm, "model.norm", &kNorm, When::Always, {{"weight", "output_norm.weight"}}},
};
inline constexpr ModuleRow kModelRotary[] = {
    {Role::Rotary, "model.rotary_emb", &kRotary},
};
inline constexpr ModuleRow kHead[] = {
    {Role::Head,
     "lm_head",
     &kLinear,
     When::Always,
     {{"weight", "output.weight | token_embd.weight"}}},
};

}  // namespace ktx::families

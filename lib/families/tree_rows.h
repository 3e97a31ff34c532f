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

inline constexpr ClassRow kMoe{"{P}MoE"};
inline constexpr ClassRow kConv1d{"torch.nn.modules.conv.Conv1d", "torch.nn.Conv1d Conv1d"};
inline constexpr ClassRow kTopkRouter{"{P}TopkRouter"};
// transformers 4 has a list of experts, transformers 5 one module for all of them.
inline constexpr ClassRow kExpertsOrList{
    "torch.nn.modules.container.ModuleList",
    "torch.nn.ModuleList ModuleList {P}Experts K.{P}Experts T.{P}Experts "
    "{P}NaiveMoe K.{P}NaiveMoe T.{P}NaiveMoe"};

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
// Norms that only some models of the family have.
inline constexpr ModuleRow kOptionalQkNorms[] = {
    {Role::QNorm, "L.self_attn.q_norm", &kNorm, When::QkNorm, {{"weight", "B.attn_q_norm.weight"}}},
    {Role::KNorm, "L.self_attn.k_norm", &kNorm, When::QkNorm, {{"weight", "B.attn_k_norm.weight"}}},
};
inline constexpr ModuleRow kMlaProjections[] = {
    {Role::QProj,
     "L.self_attn.q_proj",
     &kLinear,
     When::NoQueryLatent,
     {{"weight", "B.attn_q.weight"}}},
    {Role::QAProj,
     "L.self_attn.q_a_proj",
     &kLinear,
     When::QueryLatent,
     {{"weight", "B.attn_q_a.weight"}, {"bias", "B.attn_q_a.bias", When::AttentionBias}}},
    {Role::QANorm,
     "L.self_attn.q_a_layernorm",
     &kNorm,
     When::QueryLatent,
     {{"weight", "B.attn_q_a_norm.weight"}}},
    {Role::QBProj,
     "L.self_attn.q_b_proj",
     &kLinear,
     When::QueryLatent,
     {{"weight", "B.attn_q_b.weight"}}},
    {Role::KvAProj,
     "L.self_attn.kv_a_proj_with_mqa",
     &kLinear,
     When::Always,
     {{"weight", "B.attn_kv_a_mqa.weight"}, {"bias", "B.attn_kv_a_mqa.bias", When::AttentionBias}}},
    {Role::KvANorm,
     "L.self_attn.kv_a_layernorm",
     &kNorm,
     When::Always,
     {{"weight", "B.attn_kv_a_norm.weight"}}},
    {Role::KvBProj,
     "L.self_attn.kv_b_proj",
     &kLinear,
     When::Always,
     {{"weight", "B.attn_kv_b.weight"},
      {"k_b", "B.attn_k_b.weight"},
      {"v_b", "B.attn_v_b.weight"}}},
    {Role::OProj,
     "L.self_attn.o_proj",
     &kLinear,
     When::Always,
     {{"weight", "B.attn_output.weight"}, {"bias", "B.attn_output.bias", When::AttentionBias}}},
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
// A shared expert beside the routed ones, with a sigmoid gate (Qwen2-MoE, Qwen3-Next).
inline constexpr ModuleRow kGatedSharedExpert[] = {
    {Role::SharedMlp, "L.mlp.shared_expert", &kMlp, When::Moe},
    {Role::GateProj,
     "L.mlp.shared_expert.gate_proj",
     &kLinear,
     When::Moe,
     {{"weight", "B.ffn_gate_shexp.weight"}}},
    {Role::UpProj,
     "L.mlp.shared_expert.up_proj",
     &kLinear,
     When::Moe,
     {{"weight", "B.ffn_up_shexp.weight"}}},
    {Role::DownProj,
     "L.mlp.shared_expert.down_proj",
     &kLinear,
     When::Moe,
     {{"weight", "B.ffn_down_shexp.weight"}}},
    {Role::Activation, "L.mlp.shared_expert.act_fn", &kSilu, When::Moe},
    {Role::SharedGate,
     "L.mlp.shared_expert_gate",
     &kLinear,
     When::Moe,
     {{"weight", "B.ffn_gate_inp_shexp.weight"}}},
};
// Of models whose other layers have something else in the place of attention.
inline constexpr ModuleRow kFullAttentionQkv[] = {
    {Role::QProj,
     "L.self_attn.q_proj",
     &kLinear,
     When::FullAttention,
     {{"weight", "B.attn_q.weight"}}},
    {Role::KProj,
     "L.self_attn.k_proj",
     &kLinear,
     When::FullAttention,
     {{"weight", "B.attn_k.weight"}}},
    {Role::VProj,
     "L.self_attn.v_proj",
     &kLinear,
     When::FullAttention,
     {{"weight", "B.attn_v.weight"}}},
};
// The modules below "L.mlp.experts" of Qwen and DeepSeek.
inline constexpr ModuleRow kExpertParts[] = {
    {Role::Expert, "L.mlp.experts.{expert}", &kMlp, When::Moe},
    {Role::GateProj, "L.mlp.experts.{expert}.gate_proj", &kLinear, When::Moe, {{"gate"}}},
    {Role::UpProj, "L.mlp.experts.{expert}.up_proj", &kLinear, When::Moe, {{"up"}}},
    {Role::DownProj, "L.mlp.experts.{expert}.down_proj", &kLinear, When::Moe, {{"down"}}},
    {Role::Activation, "L.mlp.experts.{expert}.act_fn", &kSilu, When::Moe},
};

inline constexpr ParamRow kStackedGate{"gate", "B.ffn_gate_exps.weight"};
inline constexpr ParamRow kStackedUp{"up", "B.ffn_up_exps.weight"};
inline constexpr ParamRow kStackedDown{"down", "B.ffn_down_exps.weight"};
// Routed experts with a correction bias, as DeepSeek V3 has them.
inline constexpr ModuleRow kMoeExperts[] = {
    {Role::Moe, "L.mlp", &kMoe, When::Moe},
    {Role::Experts,
     "L.mlp.experts",
     &kExpertsOrList,
     When::Moe,
     {kStackedGate, kStackedUp, kStackedDown}},
};
// The bias had no suffix in the first files.
inline constexpr ParamRow kCorrectionBias{"correction_bias", "B.exp_probs_b.bias | B.exp_probs_b",
                                          When::CorrectionBias};
inline constexpr ModuleRow kCorrectedRouter[] = {
    {Role::Router,
     "L.mlp.gate",
     &kTopkRouter,
     When::Moe,
     {{"weight", "B.ffn_gate_inp.weight"}, kCorrectionBias}},
};
inline constexpr ModuleRow kSharedExperts[] = {
    {Role::SharedMlp, "L.mlp.shared_experts", &kMlp, When::MoeWithShared},
    {Role::GateProj,
     "L.mlp.shared_experts.gate_proj",
     &kLinear,
     When::MoeWithShared,
     {{"weight", "B.ffn_gate_shexp.weight"}}},
    {Role::UpProj,
     "L.mlp.shared_experts.up_proj",
     &kLinear,
     When::MoeWithShared,
     {{"weight", "B.ffn_up_shexp.weight"}}},
    {Role::DownProj,
     "L.mlp.shared_experts.down_proj",
     &kLinear,
     When::MoeWithShared,
     {{"weight", "B.ffn_down_shexp.weight"}}},
    {Role::Activation, "L.mlp.shared_experts.act_fn", &kSilu, When::MoeWithShared},
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
// In files of some families the norm before the feed-forward part has the name that it has in
// the tree.
inline constexpr ModuleRow kPostAttentionNorms[] = {
    {Role::AttentionNorm,
     "L.input_layernorm",
     &kNorm,
     When::Always,
     {{"weight", "B.attn_norm.weight"}}},
    {Role::MlpNorm,
     "L.post_attention_layernorm",
     &kNorm,
     When::Always,
     {{"weight", "B.post_attention_norm.weight"}}},
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
     When::Logits,
     {{"weight", "output.weight | token_embd.weight"}}},
};

// Scores of a text, where a model was made for that (rerankers). Their tree is that of
// transformers' ForSequenceClassification.
inline constexpr ModuleRow kScores[] = {
    {Role::ScoreHead, "score", &kLinear, When::Scores, {{"weight", "cls.output.weight"}}},
};

}  // namespace ktx::families

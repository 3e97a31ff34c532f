// Stretches of module rows that several families share, and the classes in them.
// Data only; a family strings them together in registration order.
#pragma once

#include "lib/families/family.h"

namespace ktx::families {

using ir::Role;

// The families are defined each in its own file.
#define KTX_FAMILY(symbol) extern const Family symbol;
#include "lib/families/family_table.def"
#undef KTX_FAMILY

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

inline constexpr ClassRow kTextModel{"{P}TextModel", "transformers.{P}TextModel", KTX_PRETRAINED};
inline constexpr ClassRow kGatedNorm{"{P}RMSNormGated"};
inline constexpr ClassRow kGeluTanh{
    "transformers.activations.GELUTanh",
    "GELUTanh transformers.activations.PytorchGELUTanh PytorchGELUTanh"};
inline constexpr ClassRow kScaledEmbedding{
    "{P}TextScaledWordEmbedding", "",
    "torch.nn.modules.sparse.Embedding torch.nn.Embedding Embedding"};
inline constexpr ClassRow kIndexerModule{"{P}Indexer"};

inline constexpr ClassRow kMoe{"{P}MoE"};
inline constexpr ClassRow kSparseMoeBlock{"{P}SparseMoeBlock"};
inline constexpr ClassRow kExpertsModule{"{P}Experts"};
inline constexpr ClassRow kTopKRouter{"{P}TopKRouter"};
inline constexpr ClassRow kLinearRouter{"torch.nn.modules.linear.Linear",
                                        "torch.nn.Linear Linear {P}TopKRouter T.{P}TopKRouter"};
inline constexpr ClassRow kExpertList{"torch.nn.modules.container.ModuleList",
                                      "torch.nn.ModuleList ModuleList {P}Experts T.{P}Experts"};
inline constexpr ClassRow kConv1d{"torch.nn.modules.conv.Conv1d", "torch.nn.Conv1d Conv1d"};
inline constexpr ClassRow kDeepseekRouter{"{P}TopkRouter"};
// transformers 4 has a list of experts, transformers 5 one module for all of them.
inline constexpr ClassRow kExpertsOrList{
    "torch.nn.modules.container.ModuleList",
    "torch.nn.ModuleList ModuleList {P}Experts K.{P}Experts T.{P}Experts "
    "{P}NaiveMoe K.{P}NaiveMoe T.{P}NaiveMoe"};

// A module with a weight at `tensor`, and a bias where `bias` is given and holds. A tensor's name
// that ends in "." goes on with that of the parameter:
//
//   linear(Role::QProj, "L.self_attn.q_proj", "B.attn_q.", When::Always, When::QkvBias)
//
// is a linear with "weight" at "B.attn_q.weight" and "bias" at "B.attn_q.bias".
constexpr ModuleRow weighted(Role role, const char* path, const ClassRow* row_class,
                             const char* tensor, When when = When::Always) {
  return {role, path, row_class, when, {{"weight", tensor}}};
}
constexpr ModuleRow weighted(Role role, const char* path, const ClassRow* row_class,
                             const char* tensor, When when, When bias) {
  return {role, path, row_class, when, {{"weight", tensor}, {"bias", tensor, bias}}};
}
constexpr ModuleRow linear(Role role, const char* path, const char* tensor,
                           When when = When::Always) {
  return weighted(role, path, &kLinear, tensor, when);
}
constexpr ModuleRow linear(Role role, const char* path, const char* tensor, When when, When bias) {
  return weighted(role, path, &kLinear, tensor, when, bias);
}
constexpr ModuleRow norm(Role role, const char* path, const char* tensor,
                         When when = When::Always) {
  return weighted(role, path, &kNorm, tensor, when);
}
constexpr ModuleRow embedding(const char* path, const ClassRow* row_class = &kEmbedding) {
  return weighted(Role::Embedding, path, row_class, "token_embd.");
}
// One linear in the tree whose two halves are tensors of their own in a file.
constexpr ModuleRow gate_up(const char* path, const char* gate, const char* up,
                            When when = When::Always) {
  return {Role::GateUpProj, path, &kLinear, when, {{"gate", gate}, {"up", up}}};
}

inline constexpr ParamRow kStackedGate{"gate", "B.ffn_gate_exps.weight"};
inline constexpr ParamRow kStackedUp{"up", "B.ffn_up_exps.weight"};
inline constexpr ParamRow kStackedDown{"down", "B.ffn_down_exps.weight"};
// The bias had no suffix in the first files.
inline constexpr ParamRow kCorrectionBias{"correction_bias", "B.exp_probs_b.bias | B.exp_probs_b",
                                          When::CorrectionBias};
constexpr ModuleRow experts(const char* path, const ClassRow* row_class, When when = When::Always) {
  return {Role::Experts, path, row_class, when, {kStackedGate, kStackedUp, kStackedDown}};
}
constexpr ModuleRow router(const char* path, const ClassRow* row_class, When when = When::Always) {
  return weighted(Role::Router, path, row_class, "B.ffn_gate_inp.", when);
}
// Routing with a correction bias, as DeepSeek V3 has it.
constexpr ModuleRow corrected_router(const char* path, const ClassRow* row_class,
                                     When when = When::Always) {
  return {Role::Router, path, row_class, when, {{"weight", "B.ffn_gate_inp."}, kCorrectionBias}};
}

inline constexpr ModuleRow kStem[] = {
    {Role::Model, "model", &kModel},
    embedding("model.embed_tokens"),
    {Role::LayerList, "model.layers", &kModuleList},
    {Role::Layer, "model.layers.{layer}", &kDecoderLayer},
};

inline constexpr ModuleRow kCausalRoot[] = {{Role::Root, "", &kForCausalLMGenerating}};
inline constexpr ModuleRow kPlainRoot[] = {{Role::Root, "", &kForCausalLM}};
inline constexpr auto kCausalStem = join(kCausalRoot, kStem);

inline constexpr ModuleRow kGqa[] = {{Role::Attention, "L.self_attn", &kAttention}};
inline constexpr ModuleRow kSdpaAttention[] = {
    {Role::Attention, "L.self_attn", &kAttentionFlashSdpa}};
inline constexpr ModuleRow kFullAttention[] = {
    {Role::Attention, "L.self_attn", &kAttention, When::FullAttention}};
inline constexpr ModuleRow kLatentAttention[] = {{Role::Mla, "L.self_attn", &kAttention}};
inline constexpr ModuleRow kGqaProjections[] = {
    linear(Role::QProj, "L.self_attn.q_proj", "B.attn_q.", When::Always, When::QkvBias),
    linear(Role::KProj, "L.self_attn.k_proj", "B.attn_k.", When::Always, When::QkvBias),
    linear(Role::VProj, "L.self_attn.v_proj", "B.attn_v.", When::Always, When::QkvBias),
    linear(Role::OProj, "L.self_attn.o_proj", "B.attn_output.", When::Always, When::AttentionBias),
};
inline constexpr auto kGqaAttention = join(kGqa, kGqaProjections);
inline constexpr ModuleRow kQkNorms[] = {
    norm(Role::QNorm, "L.self_attn.q_norm", "B.attn_q_norm."),
    norm(Role::KNorm, "L.self_attn.k_norm", "B.attn_k_norm."),
};
// Gates of attention's output, with one number for each head or for each element.
inline constexpr ModuleRow kHeadGates[] = {
    linear(Role::AttentionGateProj, "L.self_attn.g_proj", "B.attn_gate."),
};
// Norms that only some models of the family have.
inline constexpr ModuleRow kOptionalQkNorms[] = {
    norm(Role::QNorm, "L.self_attn.q_norm", "B.attn_q_norm.", When::QkNorm),
    norm(Role::KNorm, "L.self_attn.k_norm", "B.attn_k_norm.", When::QkNorm),
};
inline constexpr ModuleRow kMlaProjections[] = {
    linear(Role::QProj, "L.self_attn.q_proj", "B.attn_q.", When::NoQueryLatent),
    linear(Role::QAProj, "L.self_attn.q_a_proj", "B.attn_q_a.", When::QueryLatent,
           When::AttentionBias),
    norm(Role::QANorm, "L.self_attn.q_a_layernorm", "B.attn_q_a_norm.", When::QueryLatent),
    linear(Role::QBProj, "L.self_attn.q_b_proj", "B.attn_q_b.", When::QueryLatent),
    linear(Role::KvAProj, "L.self_attn.kv_a_proj_with_mqa", "B.attn_kv_a_mqa.", When::Always,
           When::AttentionBias),
    norm(Role::KvANorm, "L.self_attn.kv_a_layernorm", "B.attn_kv_a_norm."),
    {Role::KvBProj,
     "L.self_attn.kv_b_proj",
     &kLinear,
     When::Always,
     {{"weight", "B.attn_kv_b.weight"},
      {"k_b", "B.attn_k_b.weight"},
      {"v_b", "B.attn_v_b.weight"}}},
    linear(Role::OProj, "L.self_attn.o_proj", "B.attn_output.", When::Always, When::AttentionBias),
};
inline constexpr ModuleRow kLayerRotary[] = {
    {Role::Rotary, "L.self_attn.rotary_emb", &kRotary},
};

inline constexpr ModuleRow kDenseMlp[] = {
    {Role::Mlp, "L.mlp", &kMlp, When::Dense},
    linear(Role::GateProj, "L.mlp.gate_proj", "B.ffn_gate.", When::Dense, When::MlpBias),
    linear(Role::UpProj, "L.mlp.up_proj", "B.ffn_up.", When::Dense, When::MlpBias),
    linear(Role::DownProj, "L.mlp.down_proj", "B.ffn_down.", When::Dense, When::MlpBias),
    {Role::Activation, "L.mlp.act_fn", &kSilu, When::Dense},
};
// A shared expert beside the routed ones, with a sigmoid gate (Qwen2-MoE, Qwen3-Next).
inline constexpr ModuleRow kGatedSharedExpert[] = {
    {Role::SharedMlp, "L.mlp.shared_expert", &kMlp, When::Moe},
    linear(Role::GateProj, "L.mlp.shared_expert.gate_proj", "B.ffn_gate_shexp.", When::Moe),
    linear(Role::UpProj, "L.mlp.shared_expert.up_proj", "B.ffn_up_shexp.", When::Moe),
    linear(Role::DownProj, "L.mlp.shared_expert.down_proj", "B.ffn_down_shexp.", When::Moe),
    {Role::Activation, "L.mlp.shared_expert.act_fn", &kSilu, When::Moe},
    linear(Role::SharedGate, "L.mlp.shared_expert_gate", "B.ffn_gate_inp_shexp.", When::Moe),
};
// For models whose other layers have something other than attention.
inline constexpr ModuleRow kFullAttentionQkv[] = {
    linear(Role::QProj, "L.self_attn.q_proj", "B.attn_q.", When::FullAttention),
    linear(Role::KProj, "L.self_attn.k_proj", "B.attn_k.", When::FullAttention),
    linear(Role::VProj, "L.self_attn.v_proj", "B.attn_v.", When::FullAttention),
};
// The modules below "L.mlp.experts" of Qwen and DeepSeek.
inline constexpr ModuleRow kExpertParts[] = {
    {Role::Expert, "L.mlp.experts.{expert}", &kMlp, When::Moe},
    {Role::GateProj, "L.mlp.experts.{expert}.gate_proj", &kLinear, When::Moe, {{"gate"}}},
    {Role::UpProj, "L.mlp.experts.{expert}.up_proj", &kLinear, When::Moe, {{"up"}}},
    {Role::DownProj, "L.mlp.experts.{expert}.down_proj", &kLinear, When::Moe, {{"down"}}},
    {Role::Activation, "L.mlp.experts.{expert}.act_fn", &kSilu, When::Moe},
};

// Routed experts with a correction bias, as DeepSeek V3 has them.
inline constexpr ModuleRow kMoeExperts[] = {
    {Role::Moe, "L.mlp", &kMoe, When::Moe},
    experts("L.mlp.experts", &kExpertsOrList, When::Moe),
};
inline constexpr ModuleRow kCorrectedRouter[] = {
    corrected_router("L.mlp.gate", &kDeepseekRouter, When::Moe),
};
inline constexpr ModuleRow kSharedExperts[] = {
    {Role::SharedMlp, "L.mlp.shared_experts", &kMlp, When::MoeWithShared},
    linear(Role::GateProj, "L.mlp.shared_experts.gate_proj", "B.ffn_gate_shexp.",
           When::MoeWithShared),
    linear(Role::UpProj, "L.mlp.shared_experts.up_proj", "B.ffn_up_shexp.", When::MoeWithShared),
    linear(Role::DownProj, "L.mlp.shared_experts.down_proj", "B.ffn_down_shexp.",
           When::MoeWithShared),
    {Role::Activation, "L.mlp.shared_experts.act_fn", &kSilu, When::MoeWithShared},
};

inline constexpr ModuleRow kSparseMoe[] = {{Role::Moe, "L.mlp", &kSparseMoeBlock, When::Moe},
                                           experts("L.mlp.experts", &kExpertsOrList, When::Moe)};
inline constexpr auto kDeepseekMoe =
    join(kMoeExperts, kExpertParts, kCorrectedRouter, kSharedExperts);
inline constexpr ExpertForm kDeepseekExperts{LayerPattern::FirstDense, "n_routed_experts",
                                             "moe_intermediate_size", SharedKind::Count,
                                             RouterKind::GroupsByTwoBest};

inline constexpr ModuleRow kLayerNorms[] = {
    norm(Role::AttentionNorm, "L.input_layernorm", "B.attn_norm."),
    norm(Role::MlpNorm, "L.post_attention_layernorm", "B.ffn_norm."),
};
// In files of some families the norm before the feed-forward part has the name that it has in
// the tree.
inline constexpr ModuleRow kPostAttentionNorms[] = {
    norm(Role::AttentionNorm, "L.input_layernorm", "B.attn_norm."),
    norm(Role::MlpNorm, "L.post_attention_layernorm", "B.post_attention_norm."),
};

// Norms before and behind each part, and behind each alone.
inline constexpr ModuleRow kSandwichNorms[] = {
    norm(Role::AttentionNorm, "L.input_layernorm", "B.attn_norm."),
    norm(Role::AttentionPostNorm, "L.post_attention_layernorm", "B.post_attention_norm."),
    norm(Role::MlpNorm, "L.pre_feedforward_layernorm", "B.ffn_norm."),
    norm(Role::MlpPostNorm, "L.post_feedforward_layernorm", "B.post_ffw_norm.")};
inline constexpr ModuleRow kPostNorms[] = {
    norm(Role::AttentionPostNorm, "L.post_attention_layernorm", "B.post_attention_norm."),
    norm(Role::MlpPostNorm, "L.post_feedforward_layernorm", "B.post_ffw_norm.")};

inline constexpr ModuleRow kFinalNorm[] = {
    norm(Role::FinalNorm, "model.norm", "output_norm."),
};
inline constexpr ModuleRow kModelRotary[] = {
    {Role::Rotary, "model.rotary_emb", &kRotary},
};
// Layers with a window are rotated by a table of their own.
inline constexpr ModuleRow kTwoRotaries[] = {
    {Role::Rotary, "model.rotary_emb", &kRotary},
    {Role::LocalRotary, "model.rotary_emb_local", &kRotary}};
inline constexpr ModuleRow kHead[] = {
    linear(Role::Head, "lm_head", "output.weight | token_embd.weight", When::Logits),
};
inline constexpr auto kTreeEnd = join(kFinalNorm, kModelRotary, kHead);

// Scores of a text, where a model was made for that (rerankers). Their tree is that of
// transformers' ForSequenceClassification.
inline constexpr ModuleRow kScores[] = {
    linear(Role::ScoreHead, "score", "cls.output.", When::Scores),
};

}  // namespace ktx::families

// GPT-2 and what was made of its code: layer norms, biases everywhere, gelu without a gate and
// positions that are looked up in a table. StarCoder and SantaCoder of 2023 (GPTBigCode) have one
// key head; CodeShell rotates, Jais of 2023 has gates and scores that fall with the distance, which
// it divides by the width of a head. Its files hold the factors of embedding and logits.
#include "lib/families/layer_norm_rows.h"

namespace ktx::families {
namespace {

#define KTX_BLOCK "transformer.h.{layer}"
constexpr ClassRow kLmHeadModel{"{P}LMHeadModel", "transformers.{P}LMHeadModel",
                                KTX_PRETRAINED KTX_GENERATION};
constexpr ClassRow kBlock{"{P}Block"};
constexpr ClassRow kProduct{"torch.nn.modules.linear.Linear",
                            "torch.nn.Linear Linear transformers.pytorch_utils.Conv1D Conv1D"};
constexpr ModuleRow product(Role role, const char* path, const char* tensor) {
  return weighted(role, path, &kProduct, tensor, When::Always, When::Always);
}
constexpr ModuleRow kLmHeadRoot[] = {{Role::Root, "", &kLmHeadModel}};
constexpr ModuleRow kEmbeddings[] = {
    {Role::Model, "transformer", &kModel},
    embedding("transformer.wte"),
};
constexpr ModuleRow kPositions[] = {
    weighted(Role::PositionEmbedding, "transformer.wpe", &kEmbedding, "position_embd."),
};
constexpr ModuleRow kBlocks[] = {
    {Role::LayerList, "transformer.h", &kModuleList},
    {Role::Layer, KTX_BLOCK, &kBlock},
    layer_norm(Role::AttentionNorm, KTX_BLOCK ".ln_1", "B.attn_norm."),
    {Role::Attention, KTX_BLOCK ".attn", &kAttention},
    product(Role::QkvProj, KTX_BLOCK ".attn.c_attn", "B.attn_qkv."),
    product(Role::OProj, KTX_BLOCK ".attn.c_proj", "B.attn_output."),
    layer_norm(Role::MlpNorm, KTX_BLOCK ".ln_2", "B.ffn_norm."),
    {Role::Mlp, KTX_BLOCK ".mlp", &kMlp},
    product(Role::UpProj, KTX_BLOCK ".mlp.c_fc", "B.ffn_up."),
    product(Role::DownProj, KTX_BLOCK ".mlp.c_proj", "B.ffn_down."),
    {Role::Activation, KTX_BLOCK ".mlp.act", &kSilu},
};
constexpr ModuleRow kGate[] = {
    product(Role::GateProj, KTX_BLOCK ".mlp.c_fc2", "B.ffn_gate."),
};
#undef KTX_BLOCK
constexpr ModuleRow kRotary2[] = {{Role::Rotary, "transformer.rotary_emb", &kRotary}};
constexpr ModuleRow kEnd[] = {
    layer_norm(Role::FinalNorm, "transformer.ln_f", "output_norm."),
};
constexpr std::span<const ModuleRow> kTree[] = {kLmHeadRoot, kEmbeddings, kPositions,
                                                kBlocks,     kEnd,        kHead};
constexpr std::span<const ModuleRow> kTreeBigCode[] = {kCausalRoot, kEmbeddings, kPositions,
                                                       kBlocks,     kEnd,        kHead};
constexpr std::span<const ModuleRow> kTreeJais[] = {kLmHeadRoot, kEmbeddings, kBlocks,
                                                    kGate,       kEnd,        kHead};
constexpr std::span<const ModuleRow> kTreeCodeShell[] = {kCausalRoot, kEmbeddings, kBlocks,
                                                         kRotary2,    kEnd,        kHead};

constexpr ConfigKey kOwnModelKeys[] = {
    kVocabKey,
    longest_text(),
    positive("layer_norm_eps", "attention.layer_norm_epsilon", "", "1e-5"),
};
constexpr ConfigKey kAlibiKeys[] = {
    positive("alibi_bias_max", "attention.max_alibi_bias", "8", "8"),
};
constexpr std::span<const ConfigKey> kKeys[] = {kSizeKeys, kKvHeadKeys, kMlpKeys, kOwnModelKeys,
                                                kTiedKeys};
constexpr std::span<const ConfigKey> kKeysBigCode[] = {kSizeKeys, kOneKeyHeadKeys, kMlpKeys,
                                                       kOwnModelKeys, kTiedKeys};
constexpr std::span<const ConfigKey> kKeysJais[] = {kSizeKeys,     kKvHeadKeys, kMlpKeys,
                                                    kOwnModelKeys, kTiedKeys,   kAlibiKeys};
constexpr std::span<const ConfigKey> kKeysCodeShell[] = {
    kSizeKeys, kKvHeadKeys, kMlpKeys, kLayerNormModelKeys, kHeadKeys, kTiedKeys, kRopeScalingKeys};

constexpr ConfigAlias kSizeAliases[] = {
    {"n_embd", "hidden_size"},
    {"n_layer", "num_hidden_layers"},
    {"n_head", "num_attention_heads"},
    {"n_inner", "intermediate_size"},
    {"n_positions", "max_position_embeddings"},
    {"layer_norm_epsilon", "layer_norm_eps"},
    {"num_query_groups", "num_key_value_heads"},
};
constexpr ConfigAlias kUnitAlias[] = {{"activation_function", "hidden_act"}};
constexpr ConfigAlias kNoUnitAlias[] = {{"activation_function", ""}};
constexpr auto kAliases = join(kSizeAliases, kUnitAlias);
constexpr auto kAliasesJais = join(kSizeAliases, kNoUnitAlias);
constexpr ConfigDefault kDefaults[] = {{"layer_norm_eps", "1e-5"},
                                       {"tie_word_embeddings", "true"},
                                       {"alibi_bias_max", "8"},
                                       {"intermediate_size", "4*hidden_size"}};
constexpr ConfigDefault kOneKeyHeadDefault[] = {{"num_key_value_heads", "1"}};
constexpr auto kDefaultsBigCode = join(kDefaults, kOneKeyHeadDefault);
constexpr ConfigDefault kDefaultsCodeShell[] = {
    {"layer_norm_eps", "1e-5"}, {"rope_theta", "10000"}, {"intermediate_size", "4*hidden_size"}};

}  // namespace

const Family kGpt2 = {
    .architecture = "GPT2LMHeadModel",
    .model_types = "gpt2",
    .gguf_arch = "gpt2",
    .prefix = "GPT2",
    .layer_norms = true,
    .gateless = true,
    .unit = UnitFunction::GeluTanh,
    .rows = {kTree, kKeys, kDefaults, kAliases},
};

const Family kGptBigCode = {
    .architecture = "GPTBigCodeForCausalLM",
    .model_types = "gpt_bigcode",
    .gguf_arch = "starcoder",
    .layer_norms = true,
    .gateless = true,
    .unit = UnitFunction::GeluTanh,
    .rows = {kTreeBigCode, kKeysBigCode, kDefaultsBigCode, kAliases},
};

const Family kJais = {
    .architecture = "JAISLMHeadModel",
    .model_types = "jais",
    .gguf_arch = "jais",
    .prefix = "JAIS",
    .whole_scale = true,
    .layer_norms = true,
    .rows = {kTreeJais, kKeysJais, kDefaults, kAliasesJais},
};

const Family kCodeShell = {
    .architecture = "CodeShellForCausalLM",
    .model_types = "codeshell kclgpt",
    .gguf_arch = "codeshell",
    .layer_norms = true,
    .gateless = true,
    .unit = UnitFunction::GeluTanh,
    .rows = {kTreeCodeShell, kKeysCodeShell, kDefaultsCodeShell, kAliases},
};

}  // namespace ktx::families

// Qwen 2 and 3, dense. Qwen2 has biases on q, k and v; Qwen3 has none but norms
// each query and key head. Rotary exists at model level only.
//
// Of the models that see ("VL"), the language model: its paths are those of that model alone.
// Their rotary positions have three components, which are equal where there is only text.
#include "lib/families/key_rows.h"
#include "lib/families/tree_rows.h"

namespace ktx::families {
namespace {

constexpr ModuleRow kRoot[] = {{Role::Root, "", &kForCausalLMGenerating}};
constexpr ModuleRow kSelfAttention[] = {{Role::Attention, "L.self_attn", &kAttention}};
constexpr std::span<const ModuleRow> kTree2[] = {
    kRoot,       kStem,      kSelfAttention, kGqaProjections, kDenseMlp,
    kLayerNorms, kFinalNorm, kModelRotary,   kHead,
};
constexpr std::span<const ModuleRow> kTree3[] = {
    kRoot,       kStem,      kSelfAttention, kGqaProjections, kQkNorms, kDenseMlp,
    kLayerNorms, kFinalNorm, kModelRotary,   kHead,           kScores,
};

constexpr ClassRow kRootClass2Vl{"Qwen2VLForConditionalGeneration",
                                 "transformers.Qwen2VLForConditionalGeneration",
                                 KTX_PRETRAINED KTX_GENERATION};
constexpr ClassRow kRootClass3Vl{"Qwen3VLForConditionalGeneration",
                                 "transformers.Qwen3VLForConditionalGeneration",
                                 KTX_PRETRAINED KTX_GENERATION};
constexpr ModuleRow kRoot2Vl[] = {{Role::Root, "", &kRootClass2Vl}};
constexpr ModuleRow kRoot3Vl[] = {{Role::Root, "", &kRootClass3Vl}};
constexpr std::span<const ModuleRow> kTree2Vl[] = {
    kRoot2Vl,    kStem,      kSelfAttention, kGqaProjections, kDenseMlp,
    kLayerNorms, kFinalNorm, kModelRotary,   kHead,
};
constexpr std::span<const ModuleRow> kTree3Vl[] = {
    kRoot3Vl,    kStem,      kSelfAttention, kGqaProjections, kQkNorms, kDenseMlp,
    kLayerNorms, kFinalNorm, kModelRotary,   kHead,           kScores,
};

constexpr const char* kModelTypes2Vl[] = {"qwen2_vl", "qwen2_vl_text", "qwen2_5_vl",
                                          "qwen2_5_vl_text"};
constexpr const char* kModelTypes3Vl[] = {"qwen3_vl", "qwen3_vl_text"};
constexpr const char* kModelTypes2[] = {"qwen2"};
constexpr const char* kModelTypes3[] = {"qwen3"};
constexpr std::span<const ConfigKey> kKeys2[] = {
    kSizeKeys, kKvHeadKeys, kMlpKeys, kModelKeys, kHeadKeys, kTiedKeys, kRopeScalingKeys,
};
constexpr std::span<const ConfigKey> kKeys3[] = {
    kSizeKeys, kKvHeadKeys,        kMlpKeys,         kModelKeys, kHeadKeys,
    kTiedKeys, kAttentionBiasKeys, kRopeScalingKeys, kScoreKeys,
};
constexpr ConfigDefault kDefaults2[] = {
    {"use_sliding_window", "false"},
    {"rms_norm_eps", "1e-6"},
    {"rope_theta", "10000"},
};
constexpr ConfigDefault kDefaults3[] = {
    {"attention_bias", "false"}, {"head_dim", "128"},     {"use_sliding_window", "false"},
    {"rms_norm_eps", "1e-6"},    {"rope_theta", "10000"},
};

}  // namespace

extern const Family kQwen2;
const Family kQwen2 = {
    .architecture = "Qwen2ForCausalLM",
    .model_types = kModelTypes2,
    .gguf_arch = "qwen2",
    .prefix = "Qwen2",
    .module_k = "transformers.models.qwen2.modeling_qwen2",
    .module_t = "",
    .bias = BiasKind::Qkv,
    .keys = kKeys2,
    .defaults = kDefaults2,
    .tree = kTree2,
};

extern const Family kQwen3;
const Family kQwen3 = {
    .architecture = "Qwen3ForCausalLM",
    .model_types = kModelTypes3,
    .gguf_arch = "qwen3",
    .prefix = "Qwen3",
    .module_k = "transformers.models.qwen3.modeling_qwen3",
    .module_t = "",
    .bias = BiasKind::Config,
    .keys = kKeys3,
    .defaults = kDefaults3,
    .tree = kTree3,
};

extern const Family kQwen2Vl;
const Family kQwen2Vl = {
    .architecture = "Qwen2VLForConditionalGeneration",
    .model_types = kModelTypes2Vl,
    .gguf_arch = "qwen2vl",
    .prefix = "Qwen2VLText",
    .module_k = "transformers.models.qwen2_vl.modeling_qwen2_vl",
    .module_t = "",
    .bias = BiasKind::Qkv,
    .keys = kKeys2,
    .defaults = kDefaults2,
    .tree = kTree2Vl,
};

extern const Family kQwen3Vl;
const Family kQwen3Vl = {
    .architecture = "Qwen3VLForConditionalGeneration",
    .model_types = kModelTypes3Vl,
    .gguf_arch = "qwen3vl",
    .prefix = "Qwen3VLText",
    .module_k = "transformers.models.qwen3_vl.modeling_qwen3_vl",
    .module_t = "",
    .bias = BiasKind::Config,
    .keys = kKeys3,
    .defaults = kDefaults3,
    .tree = kTree3Vl,
};

}  // namespace ktx::families

// Qwen 2 and 3, dense. Qwen2 has biases on q, k and v; Qwen3 has none but norms
// each query and key head. Rotary exists at model level only.
//
// For models that see ("VL"), this is the language model: its paths are those of that model alone.
// Their rotary positions have three components, which are equal where there is only text; a tower
// (qwen3_vision.cc) reads images for Qwen3-VL.
#include "lib/families/key_rows.h"
#include "lib/families/tree_rows.h"

namespace ktx::families {
namespace {

constexpr std::span<const ModuleRow> kTree2[] = {kCausalStem, kGqaAttention, kDenseMlp, kLayerNorms,
                                                 kTreeEnd};
constexpr std::span<const ModuleRow> kTree3[] = {kCausalStem, kGqaAttention, kQkNorms, kDenseMlp,
                                                 kLayerNorms, kTreeEnd,      kScores};

constexpr ClassRow kRootClass2Vl{"Qwen2VLForConditionalGeneration",
                                 "transformers.Qwen2VLForConditionalGeneration",
                                 KTX_PRETRAINED KTX_GENERATION};
constexpr ClassRow kRootClass3Vl{"Qwen3VLForConditionalGeneration",
                                 "transformers.Qwen3VLForConditionalGeneration",
                                 KTX_PRETRAINED KTX_GENERATION};
constexpr ModuleRow kRoot2Vl[] = {{Role::Root, "", &kRootClass2Vl}};
constexpr ModuleRow kRoot3Vl[] = {{Role::Root, "", &kRootClass3Vl}};
constexpr std::span<const ModuleRow> kTree2Vl[] = {kRoot2Vl,  kStem,       kGqaAttention,
                                                   kDenseMlp, kLayerNorms, kTreeEnd};
constexpr std::span<const ModuleRow> kTree3Vl[] = {kRoot3Vl,  kStem,       kGqaAttention, kQkNorms,
                                                   kDenseMlp, kLayerNorms, kTreeEnd,      kScores};

constexpr std::span<const ConfigKey> kKeys2[] = {kLlamaKeys, kRopeScalingKeys};
constexpr std::span<const ConfigKey> kKeys3[] = {kLlamaKeys, kAttentionBiasKeys, kRopeScalingKeys,
                                                 kScoreKeys};
constexpr std::span<const ConfigKey> kSections[] = {kSectionKeys};
constexpr auto kKeys3Vl = join(kKeys3, kSections);
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

const Family kQwen2 = {
    .architecture = "Qwen2ForCausalLM",
    .model_types = "qwen2",
    .gguf_arch = "qwen2",
    .bias = BiasKind::Qkv,
    .rows = {kTree2, kKeys2, kDefaults2},
};

const Family kQwen3 = {
    .architecture = "Qwen3ForCausalLM",
    .model_types = "qwen3",
    .gguf_arch = "qwen3",
    .bias = BiasKind::Config,
    .rows = {kTree3, kKeys3, kDefaults3},
};

const Family kQwen2Vl = {
    .architecture = "Qwen2VLForConditionalGeneration",
    .model_types = "qwen2_vl qwen2_vl_text qwen2_5_vl qwen2_5_vl_text",
    .gguf_arch = "qwen2vl",
    .prefix = "Qwen2VLText",
    .bias = BiasKind::Qkv,
    .rows = {kTree2Vl, kKeys2, kDefaults2},
};

const Family kQwen3Vl = {
    .architecture = "Qwen3VLForConditionalGeneration",
    .model_types = "qwen3_vl qwen3_vl_text",
    .gguf_arch = "qwen3vl",
    .prefix = "Qwen3VLText",
    .bias = BiasKind::Config,
    .rows = {kTree3Vl, kKeys3Vl, kDefaults3},
};

}  // namespace ktx::families

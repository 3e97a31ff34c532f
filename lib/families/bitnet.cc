// BitNet b1.58: Llama with a norm before the last product of each part; a squared ReLU gates in the
// model of 2025. Its activations are not rounded to 8 bits here.
#include "lib/families/key_rows.h"
#include "lib/families/tree_rows.h"

namespace ktx::families {
namespace {

constexpr ModuleRow kInnerNorms[] = {
    norm(Role::AttentionInnerNorm, "L.self_attn.attn_sub_norm", "B.attn_sub_norm."),
};
constexpr ModuleRow kMlpNorm[] = {
    norm(Role::MlpInnerNorm, "L.mlp.ffn_sub_norm", "B.ffn_sub_norm."),
};
constexpr std::span<const ModuleRow> kTree[] = {kCausalStem, kGqaAttention, kInnerNorms, kDenseMlp,
                                                kMlpNorm,    kLayerNorms,   kTreeEnd};
// Files that do not say it are older than that model.
constexpr ConfigKey kOwnKeys[] = {
    {"hidden_act", "hidden_act", KeyRead::Text, KeyKind::Text, KeyWeight::Plain, "silu", "relu2"},
};
constexpr std::span<const ConfigKey> kKeys[] = {kLlamaKeys, kOwnKeys, kRopeScalingKeys};
constexpr ConfigDefault kDefaults[] = {
    {"rms_norm_eps", "1e-5"}, {"rope_theta", "500000"}, {"tie_word_embeddings", "true"}};

}  // namespace

const Family kBitNet = {
    .architecture = "BitNetForCausalLM",
    .model_types = "bitnet",
    .gguf_arch = "bitnet",
    .rows = {kTree, kKeys, kDefaults},
};

}  // namespace ktx::families

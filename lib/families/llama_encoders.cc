// Encoders that are Llamas whose tokens see those behind them: EuroBERT (with jina-embeddings-v5)
// and llama-nemotron-embed. GGUFs of the latter have their q and k rows permuted, as Llama's.
//
// No rule files know them: their tree is Llama's, without a head.
#include "lib/families/key_rows.h"
#include "lib/families/tree_rows.h"

namespace ktx::families {
namespace {

constexpr ModuleRow kRoot[] = {{Role::Root, "", &kModel}};
constexpr std::span<const ModuleRow> kTree[] = {kRoot,       kStem,      kGqaAttention, kDenseMlp,
                                                kLayerNorms, kFinalNorm, kModelRotary};
constexpr std::span<const ConfigKey> kKeys[] = {kSizeKeys, kKvHeadKeys,      kMlpKeys,  kModelKeys,
                                                kHeadKeys, kRopeScalingKeys, kScoreKeys};
constexpr ConfigDefault kDefaultsEuro[] = {{"rms_norm_eps", "1e-5"}, {"rope_theta", "250000"}};
constexpr ConfigDefault kDefaultsLlama[] = {{"rms_norm_eps", "1e-6"}, {"rope_theta", "10000"}};

}  // namespace

const Family kEuroBert = {
    .architecture = "EuroBertModel",
    .model_types = "eurobert",
    .gguf_arch = "eurobert",
    .prefix = "EuroBert",
    .encoder = true,
    .rows = {kTree, kKeys, kDefaultsEuro},
};

const Family kLlamaEmbed = {
    .architecture = "LlamaBidirectionalModel",
    .model_types = "llama_bidirec",
    .gguf_arch = "llama-embed",
    .prefix = "LlamaBidirectional",
    .interleaved_rope = true,
    .encoder = true,
    .rows = {kTree, kKeys, kDefaultsLlama},
};

}  // namespace ktx::families

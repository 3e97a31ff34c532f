// What reads images for Mistral's models (Pixtral's tower with Mistral 3's projector): a tower,
// whose GGUF (mmproj) stands beside the language model's. An image keeps its shape.
//
//   x = ln_pre(patch_conv(patches))                            a patch is 3 planes of pixels
//   x = x + attention(attention_norm(x))                       each patch sees all of them
//   x = x + down(silu(gate(n)) * up(n)), n = ffn_norm(x)
//   rows = linear_2(gelu(linear_1(merging_layer(squares(norm(x))))))
//
// The first half of a head's pairs is rotated by the line of the patch, the other half by its
// column. Converters permute q and k as those of Llama. Their tensor v.token_embd.img_break is a
// row of the language model's own embedding, which is taken from there.
#include "lib/families/tower_rows.h"
#include "lib/families/tree_rows.h"

namespace ktx::families {
namespace {

constexpr ClassRow kTower{"PixtralVisionModel"};
constexpr ClassRow kLayer{"PixtralAttentionLayer"};
constexpr ClassRow kSelfAttention{"PixtralAttention"};
constexpr ClassRow kConvolution{"torch.nn.modules.conv.Conv2d", "torch.nn.Conv2d Conv2d"};
constexpr ClassRow kProjector{
    "transformers.models.mistral3.modeling_mistral3.Mistral3MultiModalProjector",
    "Mistral3MultiModalProjector"};
constexpr ClassRow kMerger{"transformers.models.mistral3.modeling_mistral3.Mistral3PatchMerger",
                           "Mistral3PatchMerger"};
constexpr ClassRow kProjectorNorm{"transformers.models.mistral3.modeling_mistral3.Mistral3RMSNorm",
                                  "Mistral3RMSNorm"};

constexpr ModuleRow kRows[] = {
    {Role::Root, "", &kTower},
    {Role::Model, "vision_tower", &kTower},
    weighted(Role::PatchEmbedding, "vision_tower.patch_conv", &kConvolution, "v.patch_embd."),
    norm(Role::EmbeddingNorm, "vision_tower.ln_pre", "v.pre_ln."),
    {Role::LayerList, "vision_tower.layers", &kModuleList},
    {Role::Layer, "vision_tower.layers.{layer}", &kLayer},
    norm(Role::AttentionNorm, "vision_tower.layers.{layer}.attention_norm", "v.B.ln1."),
    {Role::Attention, "vision_tower.layers.{layer}.attention", &kSelfAttention},
    linear(Role::QProj, "vision_tower.layers.{layer}.attention.q_proj", "v.B.attn_q."),
    linear(Role::KProj, "vision_tower.layers.{layer}.attention.k_proj", "v.B.attn_k."),
    linear(Role::VProj, "vision_tower.layers.{layer}.attention.v_proj", "v.B.attn_v."),
    linear(Role::OProj, "vision_tower.layers.{layer}.attention.o_proj", "v.B.attn_out."),
    norm(Role::MlpNorm, "vision_tower.layers.{layer}.ffn_norm", "v.B.ln2."),
    {Role::Mlp, "vision_tower.layers.{layer}.feed_forward", &kMlp},
    linear(Role::GateProj, "vision_tower.layers.{layer}.feed_forward.gate_proj", "v.B.ffn_gate."),
    linear(Role::UpProj, "vision_tower.layers.{layer}.feed_forward.up_proj", "v.B.ffn_up."),
    linear(Role::DownProj, "vision_tower.layers.{layer}.feed_forward.down_proj", "v.B.ffn_down."),
    {Role::GridRotary, "vision_tower.patch_positional_embedding", &kRotary},
    {Role::ImageProjector, "multi_modal_projector", &kProjector},
    weighted(Role::ImageInputNorm, "multi_modal_projector.norm", &kProjectorNorm, "mm.input_norm."),
    {Role::ImageMerger, "multi_modal_projector.patch_merger", &kMerger},
    linear(Role::ImageMergeProj, "multi_modal_projector.patch_merger.merging_layer",
           "mm.patch_merger."),
    linear(Role::ImageFirstProj, "multi_modal_projector.linear_1", "mm.1.", When::Always,
           When::ImageBias),
    linear(Role::ImageSecondProj, "multi_modal_projector.linear_2", "mm.2.", When::Always,
           When::ImageBias),
};
constexpr std::span<const ModuleRow> kTree[] = {kRows};

constexpr ConfigKey kProjectorKeys[] = {
    count("image_pool", "vision.spatial_merge_size"),
    {"multimodal_projector_bias", "", KeyRead::ProjectorBias, KeyKind::Flag, KeyWeight::Plain, "",
     "false"},
};
constexpr std::span<const ConfigKey> kKeys[] = {kTowerSizeKeys, kTowerRmsNormKeys, kTowerRopeKeys,
                                                kProjectorKeys};
constexpr GgufSign kSigns[] = {
    {.key = "projector_type", .text = "pixtral"},
    {.key = "vision.projector_type", .text = "pixtral"},
};

}  // namespace

const Family kPixtralVision = {
    .architecture = "PixtralVisionTower",
    .model_types = "pixtral_vision",
    .gguf_arch = "clip",
    .gguf_signs = kSigns,
    .prefix = "Pixtral",
    .module_k = "transformers.models.pixtral.modeling_pixtral",
    .interleaved_rope = true,
    .encoder = true,
    .rows = {kTree, kKeys},
    // GGUFs of Mistral Small 3.1 and 3.2 of before December 2025 are of architecture "llama".
    .tower = {.name = "pixtral",
              .models = "mistral3 llama",
              .resize = "bicubic",
              .keeps_shape = true,
              .unfold = Unfold::Channels,
              .causal = true,
              .mark = "[IMG]",
              .behind = "[IMG_END]",
              .line_end = "[IMG_BREAK]"},
};

}  // namespace ktx::families

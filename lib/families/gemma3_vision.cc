// What reads images for Gemma 3 (SigLIP with a projector of its own): not a model but a tower,
// whose GGUF (mmproj) stands beside the language model's.
//
//   x = patch_embedding(patches) + position_embedding          a patch is 3 planes of pixels
//   x = x + self_attn(layer_norm1(x))                          each patch sees all of them
//   x = x + fc2(gelu(fc1(layer_norm2(x))))
//   rows = norm(pool(post_layernorm(x))) . projection          pool: the mean of squares of patches
//
// The projection is stored as it is multiplied, not transposed as those of linears are. GGUFs hold
// 1 + w for the norm's weights. Old ones call fc1 ffn_down and fc2 ffn_up.
#include "lib/families/layer_norm_rows.h"
#include "lib/families/tower_rows.h"
#include "lib/families/tree_rows.h"

namespace ktx::families {
namespace {

constexpr ClassRow kTower{"transformers.models.siglip.modeling_siglip.SiglipVisionModel",
                          "SiglipVisionModel"};
constexpr ClassRow kLayer{"transformers.models.siglip.modeling_siglip.SiglipEncoderLayer",
                          "SiglipEncoderLayer"};
constexpr ClassRow kSelfAttention{"transformers.models.siglip.modeling_siglip.SiglipAttention",
                                  "SiglipAttention"};
constexpr ClassRow kFeedForward{"transformers.models.siglip.modeling_siglip.SiglipMLP",
                                "SiglipMLP"};
constexpr ClassRow kConvolution{"torch.nn.modules.conv.Conv2d", "torch.nn.Conv2d Conv2d"};
constexpr ClassRow kProjector{"Gemma3MultiModalProjector"};
constexpr ClassRow kProjectorNorm{"Gemma3RMSNorm"};
constexpr ClassRow kParameter{"torch.nn.parameter.Parameter", "torch.nn.Parameter Parameter"};

constexpr ModuleRow kRows[] = {
    {Role::Root, "", &kTower},
    {Role::Model, "vision_tower", &kTower},
    biased(Role::PatchEmbedding, "vision_tower.patch_embedding", "v.patch_embd.", When::Always,
           &kConvolution),
    weighted(Role::PositionEmbedding, "vision_tower.position_embedding", &kEmbedding,
             "v.position_embd."),
    {Role::LayerList, "vision_tower.layers", &kModuleList},
    {Role::Layer, "vision_tower.layers.{layer}", &kLayer},
    layer_norm(Role::AttentionNorm, "vision_tower.layers.{layer}.layer_norm1", "v.B.ln1."),
    {Role::Attention, "vision_tower.layers.{layer}.self_attn", &kSelfAttention},
    biased(Role::QProj, "vision_tower.layers.{layer}.self_attn.q_proj", "v.B.attn_q."),
    biased(Role::KProj, "vision_tower.layers.{layer}.self_attn.k_proj", "v.B.attn_k."),
    biased(Role::VProj, "vision_tower.layers.{layer}.self_attn.v_proj", "v.B.attn_v."),
    biased(Role::OProj, "vision_tower.layers.{layer}.self_attn.out_proj", "v.B.attn_out."),
    layer_norm(Role::MlpNorm, "vision_tower.layers.{layer}.layer_norm2", "v.B.ln2."),
    {Role::Mlp, "vision_tower.layers.{layer}.mlp", &kFeedForward},
    biased(Role::UpProj, "vision_tower.layers.{layer}.mlp.fc1", "v.B.ffn_up."),
    biased(Role::DownProj, "vision_tower.layers.{layer}.mlp.fc2", "v.B.ffn_down."),
    layer_norm(Role::FinalNorm, "vision_tower.post_layernorm", "v.post_ln."),
    {Role::ImageProjector, "multi_modal_projector", &kProjector},
    weighted(Role::ImageNorm, "multi_modal_projector.mm_soft_emb_norm", &kProjectorNorm,
             "mm.soft_emb_norm."),
    {Role::ImageProj,
     "multi_modal_projector.mm_input_projection",
     &kParameter,
     When::Always,
     {{"transposed", "mm.input_projection.weight"}}},
};
constexpr std::span<const ModuleRow> kTree[] = {kRows};

constexpr ConfigKey kPoolKeys[] = {
    count("image_pool", "vision.projector.scale_factor", "4"),
};
constexpr std::span<const ConfigKey> kKeys[] = {kTowerSizeKeys, kTowerLayerNormKeys, kPoolKeys};
constexpr GgufSign kSigns[] = {
    {.key = "projector_type", .text = "gemma3"},
    {.key = "vision.projector_type", .text = "gemma3"},
};

}  // namespace

const Family kGemma3Vision = {
    .architecture = "Gemma3VisionTower",
    .model_types = "gemma3_vision",
    .gguf_arch = "clip",
    .gguf_signs = kSigns,
    .prefix = "Gemma3",
    .module_k = "transformers.models.gemma3.modeling_gemma3",
    .layer_norms = true,
    .gateless = true,
    .unit = UnitFunction::GeluTanh,
    .encoder = true,
    .rows = {kTree, kKeys},
    .tower = {.name = "gemma3",
              .models = "gemma3",
              .resize = "bilinear",
              .mark = "<start_of_image>",
              .before = "\n\n<start_of_image>",
              .behind = "<end_of_image>\n\n"},
};

}  // namespace ktx::families

// What reads images for Qwen3-VL and Qwen3.5: a tower, whose GGUF (mmproj) stands beside the
// language model's. An image keeps its shape; squares of patches become tokens.
//
//   x = patch_embed(patches) + pos_embed                       pos_embed: interpolated
//   x = x + attn(norm1(x))                                     each patch sees all of them
//   x = x + linear_fc2(gelu(linear_fc1(norm2(x))))
//   rows = linear_fc2(gelu(linear_fc1(squares(norm(x)))))      of the merger
//   part = linear_fc2(gelu(linear_fc1(norm(squares(x)))))      of deepstack, behind some layers
//
// Qwen3-VL adds such parts to what its first layers give at the image's tokens; Qwen3.5 has none.
// The convolution reads two frames of a video, which are the same for an image: files have a kernel
// for each, and the products are added.
#include "lib/families/layer_norm_rows.h"
#include "lib/families/tower_rows.h"

namespace ktx::families {
namespace {

constexpr ClassRow kTower{"Qwen3VLVisionModel", "", KTX_PRETRAINED};
constexpr ClassRow kConvolution{"torch.nn.modules.conv.Conv3d", "torch.nn.Conv3d Conv3d"};
constexpr ClassRow kLayer{"Qwen3VLVisionBlock"};
constexpr ClassRow kSelfAttention{"Qwen3VLVisionAttention"};
constexpr ClassRow kFeedForward{"Qwen3VLVisionMLP"};
constexpr ClassRow kRotation{"Qwen3VLVisionRotaryEmbedding"};
constexpr ClassRow kMerger{"Qwen3VLVisionPatchMerger"};

constexpr ModuleRow kRows[] = {
    {Role::Root, "", &kTower},
    {Role::Model, "visual", &kTower},
    {Role::PatchEmbedding,
     "visual.patch_embed",
     &kConvolution,
     When::Always,
     {{"weight", "v.patch_embd.weight"},
      {"second_frame", "v.patch_embd.weight.1"},
      {"bias", "v.patch_embd.bias"}}},
    weighted(Role::GridEmbedding, "visual.pos_embed", &kEmbedding, "v.position_embd."),
    {Role::LayerList, "visual.blocks", &kModuleList},
    {Role::Layer, "visual.blocks.{layer}", &kLayer},
    layer_norm(Role::AttentionNorm, "visual.blocks.{layer}.norm1", "v.B.ln1."),
    {Role::Attention, "visual.blocks.{layer}.attn", &kSelfAttention},
    biased(Role::QkvProj, "visual.blocks.{layer}.attn.qkv", "v.B.attn_qkv."),
    biased(Role::OProj, "visual.blocks.{layer}.attn.proj", "v.B.attn_out."),
    layer_norm(Role::MlpNorm, "visual.blocks.{layer}.norm2", "v.B.ln2."),
    {Role::Mlp, "visual.blocks.{layer}.mlp", &kFeedForward},
    biased(Role::UpProj, "visual.blocks.{layer}.mlp.linear_fc1", "v.B.ffn_up."),
    biased(Role::DownProj, "visual.blocks.{layer}.mlp.linear_fc2", "v.B.ffn_down."),
    {Role::ImagePart, "visual.blocks.{layer}.deepstack_merger", &kMerger, When::ImagePart},
    layer_norm(Role::ImagePartNorm, "visual.blocks.{layer}.deepstack_merger.norm",
               "v.deepstack.{layer}.norm.", When::ImagePart),
    biased(Role::ImageFirstProj, "visual.blocks.{layer}.deepstack_merger.linear_fc1",
           "v.deepstack.{layer}.fc1.", When::ImagePart),
    biased(Role::ImageSecondProj, "visual.blocks.{layer}.deepstack_merger.linear_fc2",
           "v.deepstack.{layer}.fc2.", When::ImagePart),
    {Role::GridRotary, "visual.rotary_pos_emb", &kRotation},
    {Role::ImageProjector, "merger", &kMerger},
    layer_norm(Role::ImageInputNorm, "merger.norm", "v.post_ln."),
    biased(Role::ImageFirstProj, "merger.linear_fc1", "mm.0."),
    biased(Role::ImageSecondProj, "merger.linear_fc2", "mm.2."),
};
constexpr std::span<const ModuleRow> kTree[] = {kRows};

constexpr ConfigKey kMergerKeys[] = {
    count("image_pool", "vision.spatial_merge_size", "2"),
    // Converters write neither: 64 and 4096 tokens with patches of 16. The published processors
    // allow 16384, for whose patches the keys and values of a large tower take 8 GiB.
    count("image_min_pixels", "vision.image_min_pixels", "65536"),
    count("image_max_pixels", "vision.image_max_pixels", "4194304"),
    {"deepstack_layers", "vision.is_deepstack_layers", KeyRead::Flags, KeyKind::Amounts,
     KeyWeight::Structural, "", ""},
};
constexpr std::span<const ConfigKey> kKeys[] = {kTowerSizeKeys, kTowerLayerNormKeys, kTowerRopeKeys,
                                                kMergerKeys};
constexpr GgufSign kSigns[] = {
    {.key = "projector_type", .text = "qwen3vl_merger"},
    {.key = "vision.projector_type", .text = "qwen3vl_merger"},
};

}  // namespace

const Family kQwen3Vision = {
    .architecture = "Qwen3VisionTower",
    .model_types = "qwen3_vision",
    .gguf_arch = "clip",
    .gguf_signs = kSigns,
    .prefix = "Qwen3VL",
    .module_k = "transformers.models.qwen3_vl.modeling_qwen3_vl",
    .layer_norms = true,
    .gateless = true,
    .unit = UnitFunction::GeluTanh,
    .encoder = true,
    .rows = {kTree, kKeys},
    .tower = {.name = "qwen3vl_merger",
              .models = "qwen3vl qwen3vlmoe qwen35 qwen35moe",
              .resize = "bicubic",
              .keeps_shape = true,
              .unfold = Unfold::Patches,
              .causal = true,
              .axes = true,
              .one_frequency = true,
              .mark = "<|vision_start|><|image_pad|><|vision_end|>",
              .before = "<|vision_start|>",
              .behind = "<|vision_end|>"},
};

}  // namespace ktx::families

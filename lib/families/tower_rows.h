// Rows that towers share: linears with a bias, and config keys (sizes of the image, of its patches
// and of the tower). Data only, as in key_rows.h.
#pragma once

#include "lib/families/key_rows.h"
#include "lib/families/tree_rows.h"

namespace ktx::families {

constexpr ModuleRow biased(Role role, const char* path, const char* tensor,
                           When when = When::Always, const ClassRow* row_class = &kLinear) {
  return weighted(role, path, row_class, tensor, when, When::Always);
}

inline constexpr ConfigKey kTowerSizeKeys[] = {
    count("hidden_size", "vision.embedding_length"),
    count("num_hidden_layers", "vision.block_count"),
    count("num_attention_heads", "vision.attention.head_count"),
    count("intermediate_size", "vision.feed_forward_length"),
    count("image_size", "vision.image_size"),
    count("patch_size", "vision.patch_size"),
    count("projection_dim", "vision.projection_dim"),
    {"image_mean", "vision.image_mean", KeyRead::Numbers, KeyKind::Amounts, KeyWeight::Plain, "",
     ""},
    {"image_std", "vision.image_std", KeyRead::Numbers, KeyKind::Amounts, KeyWeight::Plain, "", ""},
};
inline constexpr ConfigKey kTowerLayerNormKeys[] = {
    positive("layer_norm_eps", "vision.attention.layer_norm_epsilon"),
    flag("use_gelu", "use_gelu", "false"),
};
inline constexpr ConfigKey kTowerRmsNormKeys[] = {
    positive("rms_norm_eps", "vision.attention.layer_norm_epsilon"),
    flag("use_silu", "use_silu", "false"),
};
// Patches that are rotated by line and column.
inline constexpr ConfigKey kTowerRopeKeys[] = {
    positive("rope_theta", "rope.freq_base", "10000", "10000"),
};

}  // namespace ktx::families

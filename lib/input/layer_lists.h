// Lists with an entry for each layer, as configs are published with them, in the normal form of
// hf_config.h:
//
//   "hybrid_layer_pattern": [0, 1, 1]              "layer_types": ["full_attention", ...]
//   "rope_theta": [1e6, 1e4, 1e4]                  "rope_theta": 1e6, "rope_local_base_freq": 1e4
//   "attention_other_setting": {"num_attention_heads": 96}     a list "num_attention_heads"
//
// Lists that are not of that form stay as they are, for their readers to refuse.
#pragma once

#include "lib/input/hf_config.h"

namespace ktx::input {

// Which layers have a window or experts, and the limits of their units. What is said of prediction
// layers goes.
void spell_layer_lists(HfConfig& config);
// What differs by kind of layer; behind spell_layer_lists.
void join_rope_lists(HfConfig& config);
// Heads of layers with a window, where a config counts them by themselves; behind the family's
// aliases.
void list_heads_by_layer(HfConfig& config);
// A rounded share of a head that is rotated (0.334) becomes that of whole elements; likewise.
void settle_rotary_shares(HfConfig& config);

}  // namespace ktx::input

// Forms in which config.json files were published that are not those of their family today: a model
// type that stands for several families, or one whose own code named the keys otherwise.
//
//   granitemoehybrid, attention in all layers, no experts  ->  granite
//   chatglm: padded_vocab_size, ffn_hidden_size, ...       ->  glm: vocab_size, ...
//
// lib/input/hf_config.cc applies the first form that fits. Data only.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "lib/families/config_key.h"

namespace ktx::families {

// What a config has to say for a form to fit: a number within a range (an absent one is 0, true is
// 1), or a text, or a list of texts that are all `text`, or of which one is.
struct ConfigSign {
  const char* key;
  int64_t min = 0;
  int64_t max = 0;
  const char* text = "";
  bool among = false;
};

struct ConfigForm {
  const char* model_type;
  std::span<const ConfigSign> signs = {};     // all of them hold
  const char* becomes;                        // the model type of the family
  std::span<const ConfigAlias> aliases = {};  // their values win over those of the keys
  // Positions are counted from behind the padding token: so many of max_position_embeddings are
  // not there (RoBERTa).
  bool behind_padding = false;
};

std::span<const ConfigForm> config_forms();

// The name that transformers has today for a kind of layers ("mamba": "linear_attention").
std::string_view layer_kind(std::string_view kind);

}  // namespace ktx::families

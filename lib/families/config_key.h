// A config key and the GGUF metadata that says the same.
//
//   {"kv_lora_rank", "attention.kv_lora_rank", KeyRead::Int, KeyKind::Count,
//    KeyWeight::Structural, "", ""}
//
// lib/input/gguf_config.cc merges a config.json and a GGUF row by row, top to bottom.
#pragma once

namespace ktx::families {

// How the value is read from a GGUF; it may be concluded from tensors.
enum class KeyRead {
#define KTX_KEY_READ(id, function) id,
#include "lib/families/key_reads.def"
#undef KTX_KEY_READ
};

enum class KeyKind {
  Count,        // 1 to 2^31-1
  Counts,       // a count, or one for each layer
  Natural,      // 0 to 2^31-1
  CountOrNull,  // a count, or null
  Positive,     // above 0
  Amount,       // 0 or above
  Amounts,      // one for each layer
  Numbers,      // for each layer one of either sign
  Flag,
  Text,
  Texts,  // one for each layer
};

enum class KeyWeight {
  Structural,  // config.json and GGUF disagree: an error
  Plain,       // a warning
};

// What absence means: "" unknown, else a value, "=key" (the value of another, earlier
// key), "=head_dim" (of that key itself: hidden_size / num_attention_heads),
// "=hidden_size/num_attention_heads", "=windows" (the layers that have a window by the family) or
// "=file" (of a config: what files alone say, and configs in other words).
// Where one side lacks the key and the other has just that value, nothing is reported.
struct ConfigKey {
  const char* key;       // of config.json, in the normal form of hf_config.h
  const char* gguf_key;  // without the architecture in front; "": only in tensors
  KeyRead read;
  KeyKind kind;
  KeyWeight weight;
  const char* gguf_absent;
  const char* config_absent;
};

// The value of a config key that config.json leaves out, as JSON text. A whole number may also be
// so many times another key: "4*hidden_size".
struct ConfigDefault {
  const char* key;
  const char* value;
};

// Another name of a key in some config.json files; it becomes `key`. "" drops it.
//
//   {"scale_depth", "residual_multiplier", "num_hidden_layers",
//    [](double depth, double layers) { return depth / std::sqrt(layers); }}
//
// With `value` the key is computed from the alias and the key `other`; what absence means
// (ConfigKey) is then a value of the alias.
struct ConfigAlias {
  const char* alias;
  const char* key;
  const char* other = "";
  double (*value)(double alias, double other) = nullptr;
};

}  // namespace ktx::families

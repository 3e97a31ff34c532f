// How the rows of gguf_config_keys.def get their value from a GGUF. Private to
// gguf_config.cc.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lib/input/gguf.h"
#include "lib/input/hf_config.h"
#include "lib/support/diag.h"

namespace ktx::input {

// One GGUF being read, with what all readers need.
struct GgufKeys {
  const GgufFile& gguf;
  DiagSink& diags;
  std::string architecture;
  std::vector<std::string> deduced = {};  // sentences for notes

  std::string full(std::string_view key) const;  // "llama.block_count"
  // The key's value; a value of the wrong kind or out of range is reported and
  // gives nothing. Arrays (one number a layer) count when all are equal.
  std::optional<int64_t> integer(std::string_view key);
  std::optional<double> number(std::string_view key);
  // The first tensor "blk.N.<leaf>" of the file, or null.
  const GgufTensor* any_layer(std::string_view leaf) const;
  void wrong(std::string_view full_key, std::string_view expected);
};

using ReadKey = std::optional<ConfigScalar> (*)(GgufKeys&, std::string_view key);

std::optional<ConfigScalar> read_nothing(GgufKeys&, std::string_view key);
std::optional<ConfigScalar> read_int(GgufKeys&, std::string_view key);
std::optional<ConfigScalar> read_float(GgufKeys&, std::string_view key);
std::optional<ConfigScalar> read_flag(GgufKeys&, std::string_view key);
std::optional<ConfigScalar> read_layers(GgufKeys&, std::string_view key);
std::optional<ConfigScalar> read_mla_kv_heads(GgufKeys&, std::string_view key);
std::optional<ConfigScalar> read_vocab(GgufKeys&, std::string_view key);
std::optional<ConfigScalar> read_rotary_factor(GgufKeys&, std::string_view key);
std::optional<ConfigScalar> read_tied(GgufKeys&, std::string_view key);
std::optional<ConfigScalar> read_attention_bias(GgufKeys&, std::string_view key);
std::optional<ConfigScalar> read_mlp_bias(GgufKeys&, std::string_view key);
std::optional<ConfigScalar> read_rope_type(GgufKeys&, std::string_view key);
std::optional<ConfigScalar> read_rope_factor(GgufKeys&, std::string_view key);
std::optional<ConfigScalar> read_attention_factor(GgufKeys&, std::string_view key);
std::optional<ConfigScalar> read_mscale_all_dim(GgufKeys&, std::string_view key);
std::optional<ConfigScalar> read_q_lora(GgufKeys&, std::string_view key);
std::optional<ConfigScalar> read_nope_dim(GgufKeys&, std::string_view key);
std::optional<ConfigScalar> read_v_dim(GgufKeys&, std::string_view key);
std::optional<ConfigScalar> read_expert_size(GgufKeys&, std::string_view key);
std::optional<ConfigScalar> read_shared_size(GgufKeys&, std::string_view key);
std::optional<ConfigScalar> read_scale(GgufKeys&, std::string_view key);
std::optional<ConfigScalar> read_gating(GgufKeys&, std::string_view key);

// The shortest decimal that is this float: 9.99999997e-07f is 1e-06.
double shortest_decimal(float value);

}  // namespace ktx::input

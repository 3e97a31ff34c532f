// How the config keys of a family get their value from a GGUF. Private to
// gguf_config.cc.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lib/families/config_key.h"
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

// The value as the row's column `read` says; `key` without the architecture.
std::optional<ConfigScalar> read_key(families::KeyRead read, GgufKeys& keys, std::string_view key);

// The shortest decimal that is this float: 9.99999997e-07f is 1e-06.
double shortest_decimal(float value);

}  // namespace ktx::input

// config.json of a Hugging Face model as flat, typed keys in one normal form.
//
//   HfConfig config = KTX_TRY(HfConfig::read("model-dir"));   // folder or file
//   config.i64("hidden_size");                     // 4096
//   config.f64("rope_scaling.factor");             // dotted keys reach into objects
//   config.is_null("q_lora_rank");                 // written as null: "has none"
//
// The normal form has the names of transformers 4, as rule files and module
// trees use them; the form of transformers 5 is folded into it:
//
//   rope_parameters.rope_theta   -> rope_theta
//   rope_parameters.*            -> rope_scaling.*   (type -> rope_type)
//   rope_parameters.full_attention.*                     likewise
//   rope_parameters.sliding_attention.rope_theta         -> rope_local_base_freq
//   no scaling (null, "default") -> rope_scaling.rope_type = "default", no other
//                                   rope_scaling key
//   text_config.*, llm_config.*, language_config.*       -> *, where the model has other parts
//                                   besides; outer_model_type is then the type of the whole
//   a form of lib/families/config_form.h (granitemoehybrid, chatglm) -> that of its family
//   Infinity, -Infinity, NaN, {"__float__": "Infinity"}  -> numbers
//   num_local_experts            -> num_experts, or what else the family's aliases say
//                                   (lib/families)
//   dtype                        -> torch_dtype
//
// so experts are counted by the key that the family's own code reads
// (num_experts, num_local_experts, n_routed_experts). normalise() is idempotent.
//
// A null is kept apart from an absent key: has() is true, is_null() is true, and
// every typed getter gives nothing. Safe for untrusted text (size and depth are
// bounded). It has no defaults: the families say what a missing key means.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "lib/support/result.h"

namespace ktx::families {
struct ConfigAlias;
}

namespace ktx::input {

// Arrays of numbers or texts stay whole; an empty array is a vector<double>.
// Arrays of anything else are flattened ("key.0.name").
using ConfigScalar = std::variant<std::nullptr_t, bool, int64_t, double, std::string,
                                  std::vector<double>, std::vector<std::string>>;

enum class ConfigOrigin {
  Config,   // written in config.json
  Gguf,     // derived from GGUF metadata or tensor shapes
  Default,  // known of the family, written in neither
};

struct ConfigValue {
  ConfigScalar value;
  ConfigOrigin origin = ConfigOrigin::Config;
};

class HfConfig {
 public:
  // `path` is config.json or a folder that holds one.
  static Result<HfConfig> read(const std::string& path);
  // `file` is for messages only. Normalises.
  static Result<HfConfig> parse(std::string_view text, std::string file);

  bool empty() const { return values_.empty(); }
  // "model/config.json"; the GGUF's path when derived; for messages.
  const std::string& file() const { return file_; }
  void set_file(std::string file) { file_ = std::move(file); }

  // A GGUF's metadata, without a config.json beside it.
  bool is_of_gguf() const { return of_gguf_; }
  void set_of_gguf() { of_gguf_ = true; }
  // A message with keys in quotes ('head_dim'): those of a GGUF get the names that they have there
  // ('llama.attention.key_length'), and those of a config the names that it wrote ('moe_topk').
  std::string in_own_words(std::string message) const;

  bool has(std::string_view key) const { return find(key) != nullptr; }
  bool is_null(std::string_view key) const;
  const ConfigValue* find(std::string_view key) const;  // null when absent
  // Nothing when absent, null or of another type. A whole double is an integer
  // (transformers writes 40 and 40.0 alike) and an integer is a double.
  std::optional<int64_t> i64(std::string_view key) const;
  std::optional<double> f64(std::string_view key) const;
  std::optional<bool> boolean(std::string_view key) const;
  std::optional<std::string> string(std::string_view key) const;
  std::optional<std::vector<int64_t>> ints(std::string_view key) const;
  std::optional<std::vector<double>> floats(std::string_view key) const;
  std::optional<std::vector<std::string>> strings(std::string_view key) const;

  std::string model_type() const { return string("model_type").value_or(""); }
  // All keys in order; dotted.
  const std::map<std::string, ConfigValue, std::less<>>& values() const { return values_; }

  void set(std::string key, ConfigScalar value, ConfigOrigin origin = ConfigOrigin::Config);
  void erase(std::string_view key);
  // The value of the alias becomes that of its key unless that has one.
  void take_alias(const families::ConfigAlias& row);
  void normalise();

 private:
  std::string file_;
  bool of_gguf_ = false;
  std::map<std::string, std::string, std::less<>> aliases_;  // by key: what the config wrote
  std::map<std::string, ConfigValue, std::less<>> values_;
};

// "4096", "null", "'yarn'", "[1, 2]": for messages and golden files.
std::string describe(const ConfigScalar& value);
// For a list with different numbers: "4 in layer 0 and 8 in layer 3".
std::string describe_layers(const ConfigScalar& value);

}  // namespace ktx::input

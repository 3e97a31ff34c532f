#include "lib/input/gguf_config_read.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <iterator>

#include "lib/support/normal_quantile.h"
#include "lib/support/strings.h"

namespace ktx::input {

double shortest_decimal(float value) {
  char text[64];
  const auto end = std::to_chars(text, text + sizeof text, value).ptr;
  double number = value;
  std::from_chars(text, end, number);
  return number;
}

std::string GgufKeys::full(std::string_view key) const {
  return fmt::format("{}.{}", architecture, key);
}

void GgufKeys::wrong(std::string_view full_key, std::string_view expected) {
  const GgufValue* value = gguf.value(full_key);
  diags.error({gguf.path()}, "I004",
              fmt::format("key '{}' is {}, expected {}", printable(full_key),
                          value ? value->describe() : "missing", expected));
}

std::optional<int64_t> GgufKeys::integer(std::string_view key) {
  const GgufValue* value = gguf.value(full(key));
  if (!value) return std::nullopt;
  std::optional<int64_t> number = value->i64();
  if (const auto layers = value->ints(); layers && !layers->empty()) {
    const bool equal = std::all_of(layers->begin(), layers->end(),
                                   [&](int64_t layer) { return layer == layers->front(); });
    if (!equal) {
      wrong(full(key), "the same number for every layer");
      return std::nullopt;
    }
    number = layers->front();
  }
  if (!number || *number < 0 || *number > INT32_MAX) {
    wrong(full(key), "a whole number from 0 to 2147483647");
    return std::nullopt;
  }
  return number;
}

std::optional<double> GgufKeys::number(std::string_view key) {
  const GgufValue* value = gguf.value(full(key));
  if (!value) return std::nullopt;
  auto number = value->f64();
  if (number && value->type == GgufType::F32) number = shortest_decimal(*value->f32());
  if (!number || !std::isfinite(*number)) {
    wrong(full(key), "a finite number");
    return std::nullopt;
  }
  return number;
}

const GgufTensor* GgufKeys::any_layer(std::string_view leaf) const {
  for (const GgufTensor& tensor : gguf.tensors()) {
    if (!tensor.name.starts_with("blk.")) continue;
    const size_t dot = tensor.name.find('.', 4);
    if (dot != tensor.name.npos && tensor.name.substr(dot + 1) == leaf) return &tensor;
  }
  return nullptr;
}

namespace {

std::optional<ConfigScalar> as_scalar(std::optional<int64_t> value) {
  return value ? std::optional<ConfigScalar>(*value) : std::nullopt;
}
std::optional<ConfigScalar> as_scalar(std::optional<double> value) {
  return value ? std::optional<ConfigScalar>(*value) : std::nullopt;
}

std::optional<ConfigScalar> read_nothing(GgufKeys&, std::string_view) {
  return std::nullopt;
}

std::optional<ConfigScalar> read_int(GgufKeys& keys, std::string_view key) {
  return as_scalar(keys.integer(key));
}

std::optional<ConfigScalar> read_layers(GgufKeys& keys, std::string_view key);

// A number for each of the model's layers; the file's list goes on with prediction layers.
std::optional<std::vector<int64_t>> numbers_by_layer(GgufKeys& keys, std::string_view key) {
  const GgufValue* value = keys.gguf.value(keys.full(key));
  auto numbers = value ? value->ints() : std::nullopt;
  if (!numbers || numbers->empty()) return std::nullopt;
  const auto layers = read_layers(keys, "block_count");
  const auto* count = layers ? std::get_if<int64_t>(&*layers) : nullptr;
  if (count && *count > 0 && *count < std::ssize(*numbers)) {
    numbers->resize(static_cast<size_t>(*count));
  }
  return numbers;
}

// One number, or one for each layer.
std::optional<ConfigScalar> read_ints(GgufKeys& keys, std::string_view key) {
  const auto layers = numbers_by_layer(keys, key);
  if (!layers) return read_int(keys, key);
  return std::vector<double>(layers->begin(), layers->end());
}

// A number that need not be whole for each layer.
std::optional<ConfigScalar> amounts_of(GgufKeys& keys, const std::string& full_key) {
  const GgufValue* value = keys.gguf.value(full_key);
  const auto numbers = value ? value->floats() : std::nullopt;
  if (!numbers || numbers->empty()) return std::nullopt;
  const auto layers = read_layers(keys, "block_count");
  const auto* count = layers ? std::get_if<int64_t>(&*layers) : nullptr;
  std::vector<double> all;
  for (const float number : *numbers) all.push_back(shortest_decimal(number));
  if (count && *count > 0 && *count < std::ssize(all)) all.resize(static_cast<size_t>(*count));
  return all;
}

std::optional<ConfigScalar> read_amounts(GgufKeys& keys, std::string_view key) {
  return amounts_of(keys, keys.full(key));
}
// The same for a key that has no architecture in front.
std::optional<ConfigScalar> read_bare_amounts(GgufKeys& keys, std::string_view key) {
  return amounts_of(keys, std::string(key));
}

// A list of its own length.
std::optional<ConfigScalar> read_numbers(GgufKeys& keys, std::string_view key) {
  const GgufValue* value = keys.gguf.value(keys.full(key));
  const auto numbers = value ? value->floats() : std::nullopt;
  if (!numbers || numbers->empty()) return std::nullopt;
  std::vector<double> all;
  for (const float number : *numbers) all.push_back(shortest_decimal(number));
  return all;
}

// Numbers of layers, which configs count from 1.
std::optional<ConfigScalar> read_one_based(GgufKeys& keys, std::string_view key) {
  const GgufValue* value = keys.gguf.value(keys.full(key));
  const auto numbers = value ? value->ints() : std::nullopt;
  if (!numbers || numbers->empty()) return std::nullopt;
  std::vector<double> all;
  for (const int64_t number : *numbers) all.push_back(static_cast<double>(number) + 1);
  return all;
}

// Whole numbers that a double may not hold, as texts.
std::optional<ConfigScalar> read_wide_numbers(GgufKeys& keys, std::string_view key) {
  constexpr uint64_t kMost = 1024;
  const GgufValue* value = keys.gguf.value(keys.full(key));
  if (!value) return std::nullopt;
  const auto numbers = value->count <= kMost ? value->ints() : std::nullopt;
  if (!numbers || numbers->empty()) {
    keys.wrong(keys.full(key), "a list of whole numbers below 2^63");
    return std::nullopt;
  }
  std::vector<std::string> texts;
  for (const int64_t number : *numbers) texts.push_back(std::to_string(number));
  return texts;
}

constexpr std::string_view kNgramTable = "per_layer_token_embd.weight";

std::optional<ConfigScalar> read_ngram_rows(GgufKeys& keys, std::string_view) {
  const GgufTensor* table = keys.gguf.find(kNgramTable);
  return table ? std::optional<ConfigScalar>(table->shape[1]) : std::nullopt;
}
std::optional<ConfigScalar> read_ngram_width(GgufKeys& keys, std::string_view key) {
  if (const auto width = keys.integer(key)) return *width;
  const GgufTensor* table = keys.gguf.find(kNgramTable);
  return table ? std::optional<ConfigScalar>(table->shape[0]) : std::nullopt;
}

std::optional<ConfigScalar> read_magnitude(GgufKeys& keys, std::string_view key) {
  const auto number = keys.number(key);
  return as_scalar(number ? std::optional(std::fabs(*number)) : std::nullopt);
}

// For a file that has the width of gate and up together.
std::optional<ConfigScalar> read_half_count(GgufKeys& keys, std::string_view key) {
  const auto number = keys.integer(key);
  if (!number || *number % 2 == 0)
    return number ? as_scalar(std::optional(*number / 2)) : std::nullopt;
  keys.wrong(keys.full(key), "an even number");
  return std::nullopt;
}

// A window that does not count the token itself.
std::optional<ConfigScalar> read_one_more(GgufKeys& keys, std::string_view key) {
  const auto number = keys.integer(key);
  if (!number || *number == 0) return as_scalar(number);
  return *number + 1;
}

std::optional<ConfigScalar> read_float(GgufKeys& keys, std::string_view key) {
  return as_scalar(keys.number(key));
}

std::optional<ConfigScalar> read_flag(GgufKeys& keys, std::string_view key) {
  const GgufValue* value = keys.gguf.value(keys.full(key));
  if (!value) return std::nullopt;
  if (const auto flag = value->boolean()) return *flag;
  keys.wrong(keys.full(key), "true or false");
  return std::nullopt;
}

std::optional<ConfigScalar> read_text(GgufKeys& keys, std::string_view key) {
  const GgufValue* value = keys.gguf.value(keys.full(key));
  if (!value) return std::nullopt;
  if (const auto text = value->string()) return std::string(*text);
  keys.wrong(keys.full(key), "a text");
  return std::nullopt;
}

// Newer files count the layers of multi-token prediction heads, which HF does
// not: those at the end of the file that hold `nextn` tensors.
std::optional<ConfigScalar> read_layers(GgufKeys& keys, std::string_view key) {
  auto layers = keys.integer(key);
  if (!layers) return std::nullopt;
  if (keys.gguf.tensors().empty()) {  // vocabulary only: the key must do
    const auto extra = keys.integer("nextn_predict_layers").value_or(0);
    if (extra < *layers) *layers -= extra;
    return *layers;
  }
  const auto is_extra = [&](int64_t layer) {
    const std::string prefix = fmt::format("blk.{}.nextn.", layer);
    return std::any_of(keys.gguf.tensors().begin(), keys.gguf.tensors().end(),
                       [&](const GgufTensor& t) { return t.name.starts_with(prefix); });
  };
  // A handful of such layers exist in any model; the bound keeps this linear.
  for (int i = 0; i < 8 && *layers > 1 && is_extra(*layers - 1); ++i) --*layers;
  return *layers;
}

std::optional<ConfigScalar> read_mla_kv_heads(GgufKeys& keys, std::string_view key) {
  const auto heads = keys.integer(key);
  if (!heads || *heads == 1) return std::nullopt;
  return *heads;
}

// Rows of the embedding are what can be looked up, whatever the keys say.
std::optional<ConfigScalar> read_vocab(GgufKeys& keys, std::string_view key) {
  const GgufTensor* embedding = keys.gguf.find("token_embd.weight");
  if (embedding && embedding->n_dims == 2) return embedding->shape[1];
  if (const auto size = keys.integer(key)) return *size;
  const GgufValue* tokens = keys.gguf.value("tokenizer.ggml.tokens");
  if (tokens && tokens->is_array() && tokens->count <= INT32_MAX && tokens->count > 0) {
    return static_cast<int64_t>(tokens->count);
  }
  return std::nullopt;
}

std::optional<ConfigScalar> read_rotary_factor(GgufKeys& keys, std::string_view key) {
  const auto rotated = keys.integer(key);
  auto head = keys.integer("attention.key_length");
  if (!head) {
    const auto hidden = keys.integer("embedding_length");
    const auto heads = keys.integer("attention.head_count");
    if (hidden && heads && *heads > 0) head = *hidden / *heads;
  }
  if (!rotated || *rotated == 0 || !head || *head == 0) return std::nullopt;
  return static_cast<double>(*rotated) / static_cast<double>(*head);
}

std::optional<ConfigScalar> read_tied(GgufKeys& keys, std::string_view) {
  if (!keys.gguf.has("token_embd.weight")) return std::nullopt;
  return !keys.gguf.has("output.weight");
}

std::optional<ConfigScalar> read_attention_bias(GgufKeys& keys, std::string_view) {
  for (const char* leaf : {"attn_q", "attn_qkv"}) {
    if (!keys.any_layer(fmt::format("{}.weight", leaf))) continue;
    return keys.any_layer(fmt::format("{}.bias", leaf)) != nullptr;
  }
  return std::nullopt;
}

std::optional<ConfigScalar> read_mlp_bias(GgufKeys& keys, std::string_view) {
  if (!keys.any_layer("ffn_up.weight")) return std::nullopt;
  return keys.any_layer("ffn_up.bias") != nullptr;
}

// For towers, which read images.
std::optional<ConfigScalar> read_projector_bias(GgufKeys& keys, std::string_view) {
  if (keys.gguf.tensors().empty()) return std::nullopt;
  return keys.gguf.find("mm.1.bias") != nullptr;
}

std::optional<ConfigScalar> read_qk_norm(GgufKeys& keys, std::string_view) {
  if (keys.gguf.tensors().empty()) return std::nullopt;
  return keys.any_layer("attn_q_norm.weight") != nullptr;
}

// The key is written as true where a config does not say it.
std::optional<ConfigScalar> read_parallel_parts(GgufKeys& keys, std::string_view) {
  if (keys.gguf.tensors().empty()) return std::nullopt;
  return keys.any_layer("ffn_norm.weight") == nullptr;
}

std::optional<ConfigScalar> read_rope_type(GgufKeys& keys, std::string_view key) {
  const GgufValue* value = keys.gguf.value(keys.full(key));
  if (value && !value->string()) {
    keys.wrong(keys.full(key), "the name of a scaling");
    return std::nullopt;
  }
  // A factor of 0 is none.
  const bool none =
      value &&
      (*value->string() == "none" ||
       (*value->string() == "linear" && keys.gguf.f64(keys.full("rope.scaling.factor")) == 0.0));
  if (value && !none) return std::string(*value->string());
  if (keys.gguf.has("rope_freqs.weight")) return std::string("llama3");
  if (keys.gguf.has("rope_factors_long.weight")) return std::string("longrope");
  if (value) return std::string("default");
  // The key of 2023, from before there were types.
  const auto linear = keys.number("rope.scale_linear");
  if (linear && *linear != 1 && *linear > 0) return std::string("linear");
  return std::nullopt;
}

std::optional<ConfigScalar> read_rope_factor(GgufKeys& keys, std::string_view key) {
  if (const auto factor = keys.number(key)) return *factor;
  const auto linear = keys.number("rope.scale_linear");
  if (linear && *linear != 1 && *linear > 0) return *linear;
  return std::nullopt;
}

std::optional<ConfigScalar> read_attention_factor(GgufKeys& keys, std::string_view key) {
  if (const auto factor = keys.number(key)) return *factor;
  return as_scalar(keys.number("rope.scaling.yarn_attn_factor"));
}

std::optional<ConfigScalar> read_mscale_all_dim(GgufKeys& keys, std::string_view key) {
  const auto multiplier = keys.number(key);
  if (!multiplier || *multiplier <= 0) return std::nullopt;
  // 0.0707 / 0.1 is not 0.707 in binary; seven digits are what an f32 holds.
  double scale = 0;
  const std::string text = fmt::format("{:.7g}", *multiplier * 10);
  std::from_chars(text.data(), text.data() + text.size(), scale);
  return scale;
}

std::optional<ConfigScalar> read_q_lora(GgufKeys& keys, std::string_view key) {
  const auto rank = keys.integer(key);
  if (rank && *rank > 0) return *rank;
  if (const GgufTensor* tensor = keys.any_layer("attn_q_a.weight")) return tensor->shape[1];
  if (rank || keys.any_layer("attn_q.weight")) return nullptr;
  return std::nullopt;
}

// key_length_mla is nope + rope. Files from before that key had the same in
// key_length, which now holds kv_lora_rank + rope.
std::optional<ConfigScalar> read_nope_dim(GgufKeys& keys, std::string_view key) {
  auto whole = keys.integer(key);
  const auto rope = keys.integer("rope.dimension_count");
  if (!whole) whole = keys.integer("attention.key_length");
  if (!whole || !rope) return std::nullopt;
  if (*whole <= *rope) {
    keys.wrong(keys.full(key), fmt::format("more than rope.dimension_count, which is {}", *rope));
    return std::nullopt;
  }
  return *whole - *rope;
}

std::optional<ConfigScalar> read_v_dim(GgufKeys& keys, std::string_view key) {
  if (const auto size = keys.integer(key)) return *size;
  return as_scalar(keys.integer("attention.value_length"));
}

std::optional<ConfigScalar> read_expert_size(GgufKeys& keys, std::string_view key) {
  if (const auto size = keys.integer(key); size && *size > 0) return *size;
  // Files of early 2024 lack the key; one expert a tensor is older still.
  for (const char* leaf : {"ffn_gate_exps.weight", "ffn_gate.0.weight"}) {
    if (const GgufTensor* tensor = keys.any_layer(leaf)) return tensor->shape[1];
  }
  if (const GgufTensor* both = keys.any_layer("ffn_gate_up_exps.weight")) return both->shape[1] / 2;
  return std::nullopt;
}

std::optional<ConfigScalar> read_shared_size(GgufKeys& keys, std::string_view key) {
  if (const auto size = keys.integer(key); size && *size > 0) return *size;
  const GgufTensor* tensor = keys.any_layer("ffn_gate_shexp.weight");
  return tensor ? std::optional<ConfigScalar>(tensor->shape[1]) : std::nullopt;
}

// The shared experts' width is that of so many routed ones.
std::optional<ConfigScalar> read_shared_count(GgufKeys& keys, std::string_view key) {
  const auto width = read_shared_size(keys, key);
  const auto expert = read_expert_size(keys, "expert_feed_forward_length");
  const auto* all = width ? std::get_if<int64_t>(&*width) : nullptr;
  const auto* one = expert ? std::get_if<int64_t>(&*expert) : nullptr;
  if (!all || !one || *one == 0) return std::nullopt;
  if (*all % *one != 0) {
    keys.wrong(keys.full(key), fmt::format("a multiple of an expert's {}", *one));
    return std::nullopt;
  }
  return *all / *one;
}

// Files without the key: the layers before the first router.
std::optional<ConfigScalar> read_first_dense(GgufKeys& keys, std::string_view key) {
  if (const auto count = keys.integer(key)) return *count;
  const auto layers = keys.integer("block_count");
  for (int64_t i = 0; layers && i < std::min<int64_t>(*layers, 64); ++i) {
    if (keys.gguf.has(fmt::format("blk.{}.ffn_gate_inp.weight", i))) return i;
  }
  return std::nullopt;
}

// A period n, or whether it has a window for each layer. One of n layers has none: that with
// i % n = n - 1, or the first.
std::optional<ConfigScalar> layer_types_by(GgufKeys& keys, std::string_view key, bool from_full) {
  constexpr int64_t kMostLayers = 4096;
  const GgufValue* value = keys.gguf.value(keys.full(key));
  const auto layers = read_layers(keys, "block_count");
  const auto* count = layers ? std::get_if<int64_t>(&*layers) : nullptr;
  if (!value || !count || *count > kMostLayers) return std::nullopt;
  std::vector<std::string> types;
  const auto add = [&](bool window) {
    types.emplace_back(window ? "sliding_attention" : "full_attention");
  };
  if (value->is_array()) {
    auto each = value->booleans();
    if (const auto numbers = value->ints()) each.emplace(numbers->begin(), numbers->end());
    if (!each || std::ssize(*each) < *count) {
      keys.wrong(keys.full(key), "a period, or true or false for each layer");
      return std::nullopt;
    }
    for (int64_t i = 0; i < *count; ++i) add((*each)[static_cast<size_t>(i)]);
    return types;
  }
  const auto period = keys.integer(key);
  if (!period) return std::nullopt;
  const int64_t full = from_full ? 0 : *period - 1;
  for (int64_t i = 0; i < *count; ++i) add(*period > 0 && i % *period != full);
  return types;
}
std::optional<ConfigScalar> read_layer_types(GgufKeys& keys, std::string_view key) {
  return layer_types_by(keys, key, false);
}
std::optional<ConfigScalar> read_layer_types_from_full(GgufKeys& keys, std::string_view key) {
  return layer_types_by(keys, key, true);
}

// The number that all layers of one kind have: those with a window, or the others. Nothing where
// one number holds for both and the others are asked for.
std::optional<ConfigScalar> read_kind_count(GgufKeys& keys, std::string_view key, bool windows) {
  const GgufValue* value = keys.gguf.value(keys.full(key));
  const auto counts = value ? value->ints() : std::nullopt;
  if (!counts || counts->empty()) return windows ? read_int(keys, key) : std::nullopt;
  const auto types = read_layer_types(keys, "attention.sliding_window_pattern");
  const auto* kinds = types ? std::get_if<std::vector<std::string>>(&*types) : nullptr;
  std::optional<int64_t> found;
  for (size_t i = 0; kinds && i < std::min(kinds->size(), counts->size()); ++i) {
    if (((*kinds)[i] == "sliding_attention") != windows) continue;
    if (found.value_or((*counts)[i]) != (*counts)[i]) {
      keys.wrong(keys.full(key), "one number for layers with a window, and one for the others");
      return std::nullopt;
    }
    found = (*counts)[i];
  }
  return as_scalar(found);
}
std::optional<ConfigScalar> read_local_counts(GgufKeys& keys, std::string_view key) {
  return read_kind_count(keys, key, true);
}
std::optional<ConfigScalar> read_global_counts(GgufKeys& keys, std::string_view key) {
  return read_kind_count(keys, key, false);
}

// The first number of a list that has one for each layer.
std::optional<ConfigScalar> read_first_count(GgufKeys& keys, std::string_view key) {
  const GgufValue* value = keys.gguf.value(keys.full(key));
  const auto counts = value ? value->ints() : std::nullopt;
  if (!counts || counts->empty()) return read_int(keys, key);
  return counts->front();
}

// Whether the layers that read the keys of others are twice as wide as the first.
std::optional<ConfigScalar> read_double_shared(GgufKeys& keys, std::string_view key) {
  const GgufValue* value = keys.gguf.value(keys.full(key));
  const auto widths = value ? value->ints() : std::nullopt;
  if (!widths || widths->empty()) return std::nullopt;
  const int64_t width = widths->front();
  const int64_t own = std::ssize(*widths) - keys.integer("attention.shared_kv_layers").value_or(0);
  const bool doubled = widths->back() != width;
  for (int64_t i = 0; i < std::ssize(*widths); ++i) {
    const int64_t wanted = doubled && i >= own ? 2 * width : width;
    if ((*widths)[static_cast<size_t>(i)] == wanted) continue;
    keys.wrong(keys.full(key), "one width, doubled in the last shared_kv_layers or nowhere");
    return std::nullopt;
  }
  return doubled;
}

// Whether a layer without a window has keys and no values.
std::optional<ConfigScalar> read_keys_as_values(GgufKeys& keys, std::string_view) {
  const auto types = read_layer_types(keys, "attention.sliding_window_pattern");
  const auto* kinds = types ? std::get_if<std::vector<std::string>>(&*types) : nullptr;
  if (!kinds || !keys.any_layer("attn_k.weight")) return std::nullopt;
  for (size_t i = 0; i < kinds->size(); ++i) {
    const std::string blk = fmt::format("blk.{}.attn_", i);
    if ((*kinds)[i] == "full_attention" && keys.gguf.has(blk + "k.weight")) {
      return !keys.gguf.has(blk + "v.weight");
    }
  }
  return std::nullopt;
}

std::optional<ConfigScalar> kinds_by_heads(GgufKeys& keys, std::string_view key,
                                           const char* without) {
  const auto counts = numbers_by_layer(keys, key);
  if (!counts) return std::nullopt;
  std::vector<std::string> kinds;
  for (const int64_t heads : *counts) kinds.emplace_back(heads == 0 ? without : "full_attention");
  return kinds;
}
// Layers without key heads have a delta net or a state space.
std::optional<ConfigScalar> read_keyless_layers(GgufKeys& keys, std::string_view key) {
  return kinds_by_heads(keys, key, "linear_attention");
}
std::optional<ConfigScalar> read_short_conv_layers(GgufKeys& keys, std::string_view key) {
  return kinds_by_heads(keys, key, "conv");
}

// For layers that are one part each: those with key heads have attention, those with a width are
// feed-forward parts, the others state spaces.
std::optional<ConfigScalar> read_part_kinds(GgufKeys& keys, std::string_view key) {
  const auto heads = numbers_by_layer(keys, key);
  const auto widths = numbers_by_layer(keys, "feed_forward_length");
  if (!heads || !widths || widths->size() != heads->size()) return std::nullopt;
  const char* const feed_forward = keys.integer("expert_count").value_or(0) > 0 ? "moe" : "mlp";
  std::vector<std::string> kinds;
  for (size_t i = 0; i < heads->size(); ++i) {
    kinds.emplace_back((*widths)[i] > 0  ? feed_forward
                       : (*heads)[i] > 0 ? "full_attention"
                                         : "linear_attention");
  }
  return kinds;
}

// The largest number of a list that has one for each layer, 0 for layers without such a part.
std::optional<ConfigScalar> read_largest_count(GgufKeys& keys, std::string_view key) {
  const GgufValue* value = keys.gguf.value(keys.full(key));
  const auto counts = value ? value->ints() : std::nullopt;
  if (!counts || counts->empty()) return read_int(keys, key);
  return std::ranges::max(*counts);
}

// Files say the width of all heads of a state-space layer.
std::optional<ConfigScalar> read_state_space_head(GgufKeys& keys, std::string_view key) {
  const auto width = keys.integer(key), heads = keys.integer("ssm.time_step_rank");
  if (!width || !heads || *heads <= 0) return std::nullopt;
  if (*width % *heads != 0) {
    keys.wrong(keys.full(key), "a multiple of the heads (ssm.time_step_rank)");
    return std::nullopt;
  }
  return *width / *heads;
}
std::optional<ConfigScalar> read_conv_bias(GgufKeys& keys, std::string_view) {
  if (keys.gguf.tensors().empty()) return std::nullopt;
  return keys.any_layer("ssm_conv1d.bias") != nullptr;
}
std::optional<ConfigScalar> read_state_space_norm(GgufKeys& keys, std::string_view) {
  if (keys.gguf.tensors().empty()) return std::nullopt;
  return keys.any_layer("ssm_norm.weight") != nullptr;
}
std::optional<ConfigScalar> read_output_gate(GgufKeys& keys, std::string_view) {
  if (keys.gguf.tensors().empty()) return std::nullopt;
  return keys.any_layer("attn_gate.weight") != nullptr;
}
std::optional<ConfigScalar> read_latent_norm(GgufKeys& keys, std::string_view) {
  if (keys.gguf.tensors().empty()) return std::nullopt;
  return keys.any_layer("ffn_routed_norm.weight") != nullptr;
}

std::optional<ConfigScalar> read_position_kind(GgufKeys& keys, std::string_view key) {
  const auto rotates = read_flag(keys, key);
  if (!rotates) return std::nullopt;
  return std::string(std::get<bool>(*rotates) ? "rope" : "nope");
}

// Which layers have an indexer, by a list or by its tensors; nothing where all have one.
std::optional<ConfigScalar> read_indexer_types(GgufKeys& keys, std::string_view key) {
  constexpr int64_t kMostLayers = 4096;
  const GgufValue* value = keys.gguf.value(keys.full(key));
  const auto layers = read_layers(keys, "block_count");
  const auto* count = layers ? std::get_if<int64_t>(&*layers) : nullptr;
  if (!count || *count > kMostLayers) return std::nullopt;
  if (!value && !keys.any_layer("indexer.attn_k.weight")) return std::nullopt;
  std::optional<std::vector<bool>> each = std::vector<bool>();
  if (value) {
    each = value->booleans();
    if (const auto numbers = value->ints()) each.emplace(numbers->begin(), numbers->end());
    if (!each || std::ssize(*each) < *count) {
      keys.wrong(keys.full(key), "1 or 0 for each layer");
      return std::nullopt;
    }
  }
  std::vector<std::string> types;
  const auto key_heads = numbers_by_layer(keys, "attention.head_count_kv");
  for (int64_t i = 0; i < *count; ++i) {
    const auto layer = static_cast<size_t>(i);
    // A layer without attention is full, as configs have it.
    const bool attends = !key_heads || layer >= key_heads->size() || (*key_heads)[layer] > 0;
    const bool full =
        value ? (*each)[layer]
              : !attends || keys.gguf.has(fmt::format("blk.{}.indexer.attn_k.weight", i));
    types.emplace_back(full ? "full" : "shared");
  }
  if (std::ranges::count(types, "full") == *count) return std::nullopt;
  return types;
}

// Which layers attend to chosen blocks, by the tensors of their indexers.
std::optional<ConfigScalar> read_sparse_layers(GgufKeys& keys, std::string_view) {
  constexpr int64_t kMostLayers = 4096;
  const auto layers = read_layers(keys, "block_count");
  const auto* count = layers ? std::get_if<int64_t>(&*layers) : nullptr;
  if (keys.gguf.tensors().empty() || !count || *count > kMostLayers) return std::nullopt;
  std::vector<std::string> types;
  for (int64_t i = 0; i < *count; ++i) {
    const bool sparse = keys.gguf.has(fmt::format("blk.{}.indexer.q_proj.weight", i));
    types.emplace_back(sparse ? "sparse_attention" : "full_attention");
  }
  return types;
}

// What each layer attends to beside a window, by the positions of an entry. The list has entries
// for prediction layers, too.
std::optional<ConfigScalar> read_compressed_layers(GgufKeys& keys, std::string_view key) {
  const GgufValue* value = keys.gguf.value(keys.full(key));
  if (!value) return std::nullopt;
  const auto rates = value->ints();
  const auto layers = read_layers(keys, "block_count");
  const auto* count = layers ? std::get_if<int64_t>(&*layers) : nullptr;
  if (!rates || !count || std::ssize(*rates) < *count) {
    keys.wrong(keys.full(key), "a number of positions for each layer");
    return std::nullopt;
  }
  std::vector<std::string> types;
  for (int64_t i = 0; i < *count; ++i) {
    const int64_t rate = (*rates)[static_cast<size_t>(i)];
    if (rate != 0 && rate != 4 && rate != 128) {
      keys.wrong(keys.full(key), "0, 4 or 128 for each layer");
      return std::nullopt;
    }
    types.emplace_back(rate == 0   ? "sliding_attention"
                       : rate == 4 ? "compressed_sparse_attention"
                                   : "heavily_compressed_attention");
  }
  return types;
}

// One number for all layers, which may be written for each.
std::optional<ConfigScalar> read_first_number(GgufKeys& keys, std::string_view key) {
  const GgufValue* value = keys.gguf.value(keys.full(key));
  const auto numbers = value ? value->floats() : std::nullopt;
  if (!numbers || numbers->empty()) return read_float(keys, key);
  for (const float number : *numbers) {
    if (number == numbers->front() && std::isfinite(number)) continue;
    keys.wrong(keys.full(key), "the same number for every layer");
    return std::nullopt;
  }
  return shortest_decimal(numbers->front());
}

std::optional<ConfigScalar> read_proportional_rope(GgufKeys& keys, std::string_view) {
  if (!keys.gguf.has("rope_freqs.weight")) return std::nullopt;
  return std::string("proportional");
}

std::optional<ConfigScalar> read_scale(GgufKeys& keys, std::string_view key) {
  const auto scale = keys.number(key);
  if (!scale || *scale == 0) return std::nullopt;  // 0 was written for "none"
  return *scale;
}

// Sections of rotated pairs: files with sections have halves instead of pairs.
std::optional<ConfigScalar> read_no_sections(GgufKeys& keys, std::string_view key) {
  const GgufValue* value = keys.gguf.value(keys.full(key));
  const auto sections = value ? value->ints() : std::nullopt;
  if (!sections) return std::nullopt;
  return std::ranges::all_of(*sections, [](int64_t pairs) { return pairs == 0; });
}

// The pairs of a head that turn by time, line and column; files have a fourth number, which is 0.
std::optional<ConfigScalar> read_sections(GgufKeys& keys, std::string_view key) {
  const GgufValue* value = keys.gguf.value(keys.full(key));
  const auto sections = value ? value->ints() : std::nullopt;
  if (!sections || sections->size() < 3) return std::nullopt;
  return std::vector<double>(sections->begin(), sections->begin() + 3);
}

// 1 or 0 for each layer.
std::optional<ConfigScalar> read_flags(GgufKeys& keys, std::string_view key) {
  const GgufValue* value = keys.gguf.value(keys.full(key));
  const auto flags = value ? value->booleans() : std::nullopt;
  if (!flags) return std::nullopt;
  return std::vector<double>(flags->begin(), flags->end());
}

// No file says it: of the published models those with 128 experts have none.
std::optional<ConfigScalar> read_qk_norm_by_experts(GgufKeys& keys, std::string_view key) {
  const auto experts = keys.integer(key);
  if (!experts) return std::nullopt;
  return *experts != 128;
}

// Whether layers with a window, or the others, have sinks.
std::optional<ConfigScalar> read_sinks(GgufKeys& keys, bool windows) {
  if (keys.gguf.tensors().empty()) return std::nullopt;
  const auto types = read_layer_types(keys, "attention.sliding_window_pattern");
  const auto* kinds = types ? std::get_if<std::vector<std::string>>(&*types) : nullptr;
  if (!kinds) return std::nullopt;
  for (size_t i = 0; i < kinds->size(); ++i) {
    if (((*kinds)[i] == "sliding_attention") != windows) continue;
    return keys.gguf.has(fmt::format("blk.{}.attn_sinks.weight", i));
  }
  return std::nullopt;
}
std::optional<ConfigScalar> read_local_sinks(GgufKeys& keys, std::string_view) {
  return read_sinks(keys, true);
}
std::optional<ConfigScalar> read_full_sinks(GgufKeys& keys, std::string_view) {
  return read_sinks(keys, false);
}

// Whether attention's gate has a number for each head or for each element.
std::optional<ConfigScalar> read_gate_kind(GgufKeys& keys, std::string_view) {
  const GgufTensor* gate = keys.any_layer("attn_gate.weight");
  if (!gate) return std::nullopt;
  const std::string layer(gate->name.substr(0, gate->name.find('.', 4)));
  const GgufTensor* output = keys.gguf.find(layer + ".attn_output.weight");
  if (!output) return std::nullopt;
  return std::string(gate->shape[1] == output->shape[0] ? "per-element" : "per-head");
}

// How many scores a text gets; 0: the model gives logits.
std::optional<ConfigScalar> read_score_count(GgufKeys& keys, std::string_view) {
  const GgufTensor* head = keys.gguf.find("cls.output.weight");
  if (head == nullptr) return std::nullopt;
  return head->n_dims == 2 ? head->shape[1] : int64_t{1};
}

std::optional<ConfigScalar> read_score_dense(GgufKeys& keys, std::string_view) {
  if (keys.gguf.tensors().empty()) return std::nullopt;
  return keys.gguf.has("cls.weight");
}

// The width between the two linears behind a text's pooling; 0: the file has none.
std::optional<ConfigScalar> read_text_dense(GgufKeys& keys, std::string_view) {
  if (keys.gguf.tensors().empty()) return std::nullopt;
  const GgufTensor* up = keys.gguf.find("dense_2.weight");
  return up && up->n_dims == 2 ? up->shape[1] : int64_t{0};
}

// How many times as wide as the stream.
std::optional<ConfigScalar> read_expansion(GgufKeys& keys, std::string_view key) {
  const auto width = keys.integer(key), hidden = keys.integer("embedding_length");
  if (!width || !hidden || *hidden <= 0) return std::nullopt;
  if (*width % *hidden != 0) {
    keys.wrong(keys.full(key), "a multiple of embedding_length");
    return std::nullopt;
  }
  return *width / *hidden;
}

// Which layers have experts, by their routers.
std::optional<ConfigScalar> read_routed_layers(GgufKeys& keys, std::string_view) {
  constexpr int64_t kMostLayers = 4096;
  const auto layers = read_layers(keys, "block_count");
  const auto* count = layers ? std::get_if<int64_t>(&*layers) : nullptr;
  if (keys.gguf.tensors().empty() || !count || *count > kMostLayers) return std::nullopt;
  std::vector<std::string> kinds;
  for (int64_t i = 0; i < *count; ++i) {
    const bool routed = keys.gguf.has(fmt::format("blk.{}.ffn_gate_inp.weight", i));
    kinds.emplace_back(routed ? "sparse" : "dense");
  }
  return kinds;
}

std::optional<ConfigScalar> read_laurel_rank(GgufKeys& keys, std::string_view) {
  const GgufTensor* down = keys.any_layer("laurel_l.weight");
  return down ? std::optional<ConfigScalar>(down->shape[1]) : std::nullopt;
}

// Files have for each layer the deviations above the mean that a share of a normal distribution is
// below: minus infinity for none of it.
std::optional<ConfigScalar> read_sparsity_shares(GgufKeys& keys, std::string_view key) {
  const GgufValue* value = keys.gguf.value(keys.full(key));
  const auto numbers = value ? value->floats() : std::nullopt;
  if (!numbers || numbers->empty()) return std::nullopt;
  std::vector<double> shares;
  for (const float deviations : *numbers) {
    shares.push_back(shortest_decimal(static_cast<float>(normal_share_below(deviations))));
  }
  return shares;
}

// The numbers of llama_pooling_type; -1 is "not said".
std::optional<ConfigScalar> read_pooling(GgufKeys& keys, std::string_view key) {
  static constexpr const char* kNames[] = {"none", "mean", "cls", "last", "rank"};
  const GgufValue* value = keys.gguf.value(keys.full(key));
  const auto number = value ? value->i64() : std::nullopt;
  if (!value || number == -1) return std::nullopt;
  if (number && *number >= 0 && *number < std::ssize(kNames)) return std::string(kNames[*number]);
  keys.wrong(keys.full(key), "0 (none), 1 (mean), 2 (cls), 3 (last) or 4 (rank)");
  return std::nullopt;
}

std::optional<ConfigScalar> read_type_count(GgufKeys& keys, std::string_view) {
  if (keys.gguf.tensors().empty()) return std::nullopt;
  const GgufTensor* types = keys.gguf.find("token_types.weight");
  if (types == nullptr) return int64_t{0};
  return types->n_dims == 2 ? types->shape[1] : int64_t{1};
}

std::optional<ConfigScalar> read_gating(GgufKeys& keys, std::string_view key) {
  const auto function = keys.integer(key);
  if (!function || *function == 0) return std::nullopt;
  if (*function == 1) return std::string("softmax");
  if (*function == 2) return std::string("sigmoid");
  if (*function == 4) return std::string("sqrtsoftplus");
  keys.wrong(keys.full(key), "1 (softmax), 2 (sigmoid) or 4 (root of softplus)");
  return std::nullopt;
}

}  // namespace

std::optional<ConfigScalar> read_key(families::KeyRead read, GgufKeys& keys, std::string_view key) {
  using ReadKey = std::optional<ConfigScalar> (*)(GgufKeys&, std::string_view key);
  static constexpr ReadKey kReads[] = {
#define KTX_KEY_READ(id, function) function,
#include "lib/families/key_reads.def"
#undef KTX_KEY_READ
  };
  return kReads[static_cast<size_t>(read)](keys, key);
}

}  // namespace ktx::input

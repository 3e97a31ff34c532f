#include "lib/input/layer_lists.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>

#include "lib/families/family.h"
#include "lib/support/strings.h"

namespace ktx::input {
namespace {

struct ByKind {
  std::optional<double> full, local;
};

// A list with a number for each layer, where those of a kind have the same.
std::optional<ByKind> by_kind(const HfConfig& config, std::string_view key) {
  const auto list = config.floats(key);
  const auto kinds = config.strings("layer_types");
  if (!list || !kinds || list->size() < kinds->size()) return std::nullopt;
  ByKind found;
  for (size_t i = 0; i < kinds->size(); ++i) {
    auto& one = (*kinds)[i] == "sliding_attention" ? found.local : found.full;
    if (one && *one != (*list)[i]) return std::nullopt;
    one = (*list)[i];
  }
  return found;
}

// Which layers have a window, as a number for each.
void spell_window_layers(HfConfig& config) {
  auto flags = config.ints("hybrid_layer_pattern");
  const bool without_itself = flags.has_value();
  if (!flags) flags = config.ints("sliding_window_layout");
  if (!flags || config.has("layer_types")) return;
  std::vector<std::string> kinds;
  for (const int64_t flag : *flags) {
    kinds.emplace_back(flag != 0 ? "sliding_attention" : "full_attention");
  }
  config.set("layer_types", kinds);
  // MiMo-V2 says the window beside it, without the token itself.
  const auto before = config.i64("sliding_window_size");
  if (without_itself && before && *before > 0 && *before < INT32_MAX)
    config.set("sliding_window", *before + 1);
}

// Attention for which an indexer chooses is full attention, as a GGUF says it.
void spell_chosen_attention(HfConfig& config) {
  auto kinds = config.strings("layer_types");
  if (!kinds) return;
  bool changed = false;
  for (std::string& kind : *kinds) {
    if (kind != "indexed_attention" && kind != "deepseek_sparse_attention") continue;
    kind = "full_attention";
    changed = true;
  }
  if (changed) config.set("layer_types", *kinds);
}

// Layers come in groups, each of which ends with one of full attention.
void spell_layer_groups(HfConfig& config) {
  auto group = config.i64("layer_group_size");
  if (!group && config.has("index_kpool")) {  // as GLM-5.3-Flash has them
    group = config.i64("full_attention_interval").value_or(4);
  }
  const auto layers = config.i64("num_hidden_layers");
  constexpr int64_t kMostLayers = 4096;
  if (!group || *group < 1 || !layers || *layers < 1 || *layers > kMostLayers ||
      config.has("layer_types")) {
    return;
  }
  std::vector<std::string> kinds;
  for (int64_t i = 0; i < *layers; ++i) {
    kinds.emplace_back((i + 1) % *group == 0 ? "full_attention" : "linear_attention");
  }
  config.set("layer_types", kinds);
}

// Layers with a delta net, counted from 1 (Kimi).
void spell_delta_layers(HfConfig& config) {
  constexpr std::string_view kLayers = "linear_attn_config.kda_layers";
  const auto listed = config.ints(kLayers);
  const auto layers = config.i64("num_hidden_layers");
  constexpr int64_t kMostLayers = 4096;
  if (!listed || !layers || *layers < 1 || *layers > kMostLayers || config.has("layer_types") ||
      !std::ranges::all_of(*listed, [&](int64_t i) { return i >= 1 && i <= *layers; })) {
    return;
  }
  std::vector<std::string> kinds(static_cast<size_t>(*layers), "full_attention");
  for (const int64_t layer : *listed) kinds[static_cast<size_t>(layer) - 1] = "linear_attention";
  config.set("layer_types", kinds);
}

// Limits of units.
constexpr const char* kLimits[] = {"swiglu_limits", "swiglu_limits_shared",
                                   "expert_swiglu_limit_list", "share_expert_swiglu_limit_list"};

// Lists by layer that go on with prediction layers end with the model's.
void drop_prediction_layers(HfConfig& config) {
  const auto layers = config.i64("num_hidden_layers");
  const auto more = config.i64("num_nextn_predict_layers").value_or(0);
  if (!layers || *layers < 1 || more < 1) return;
  const auto count = static_cast<size_t>(*layers);
  const auto shorten = [&](const char* key) {
    if (auto kinds = config.strings(key); kinds && kinds->size() > count) {
      kinds->resize(count);
      config.set(key, *kinds);
    } else if (auto numbers = config.floats(key); numbers && numbers->size() > count) {
      numbers->resize(count);
      config.set(key, *numbers);
    }
  };
  for (const char* key : {"layer_types", "mlp_layer_types", "rope_theta", "partial_rotary_factors"})
    shorten(key);
  for (const char* key : kLimits) shorten(key);
}

// A limit of null is none.
void fold_limits(HfConfig& config) {
  const auto layers = config.i64("num_hidden_layers").value_or(0);
  for (const char* key : kLimits) {
    std::vector<double> limits;
    for (int64_t i = 0;; ++i) {
      const std::string entry = fmt::format("{}.{}", key, i);
      if (!config.has(entry)) break;
      if (i < layers) limits.push_back(config.f64(entry).value_or(0));
      config.erase(entry);
    }
    if (!limits.empty()) config.set(key, limits);
  }
}

// The layers with experts, as a text of numbers.
void spell_expert_layers(HfConfig& config) {
  const auto text = config.string("moe_layers_enum");
  const auto layers = config.i64("num_hidden_layers");
  constexpr int64_t kMostLayers = 4096;
  if (!text || !layers || *layers < 1 || *layers > kMostLayers || config.has("mlp_layer_types")) {
    return;
  }
  std::vector<std::string> kinds(static_cast<size_t>(*layers), "dense");
  for (const std::string_view word : split(*text, ',')) {
    int64_t layer = -1;
    std::from_chars(word.data(), word.data() + word.size(), layer);
    if (layer >= 0 && layer < *layers) kinds[static_cast<size_t>(layer)] = "sparse";
  }
  config.erase("moe_layers_enum");
  config.set("mlp_layer_types", kinds);
}

// Layers with attention and layers with experts, each as a period and the first of them (Jamba). A
// single expert is a dense part.
void spell_layer_periods(HfConfig& config) {
  constexpr int64_t kMostLayers = 4096;
  const auto layers = config.i64("num_hidden_layers");
  if (!layers || *layers < 1 || *layers > kMostLayers) return;
  const auto spell = [&](const char* period_key, const char* first_key, const char* list,
                         const char* kind, const char* other, bool none) {
    const auto period = config.i64(period_key), first = config.i64(first_key);
    if (!period || *period < 1 || !first || config.has(list)) return;
    std::vector<std::string> kinds;
    for (int64_t i = 0; i < *layers; ++i) {
      kinds.emplace_back(!none && i % *period == *first ? kind : other);
    }
    config.set(list, kinds);
  };
  spell("attn_layer_period", "attn_layer_offset", "layer_types", "full_attention",
        "linear_attention", false);
  spell("expert_layer_period", "expert_layer_offset", "mlp_layer_types", "sparse", "dense",
        config.i64("num_experts") == 1);
  if (config.string("mamba_dt_rank") == "auto") config.erase("mamba_dt_rank");
}

}  // namespace

void spell_layer_lists(HfConfig& config) {
  if (const auto none = config.floats("ple_layer_ids"); none && none->empty()) {
    config.erase("ple_layer_ids");
  }
  spell_layer_periods(config);
  spell_window_layers(config);
  spell_layer_groups(config);
  spell_chosen_attention(config);
  spell_delta_layers(config);
  spell_expert_layers(config);
  drop_prediction_layers(config);
  fold_limits(config);
}

void join_rope_lists(HfConfig& config) {
  static constexpr struct {
    const char *list, *full, *local;
  } kLists[] = {{"rope_theta", "rope_theta", "rope_local_base_freq"},
                {"partial_rotary_factors", "partial_rotary_factor", "local_rotary_factor"}};
  for (const auto& [list, full, local] : kLists) {
    const auto found = by_kind(config, list);
    if (!found) continue;
    config.erase(list);
    if (found->full) config.set(full, *found->full);
    if (found->local) config.set(local, *found->local);
  }
}

void list_heads_by_layer(HfConfig& config) {
  if (const auto counts = config.floats("num_attention_heads_per_layer")) {
    config.set("num_attention_heads", *counts);
    config.erase("num_attention_heads_per_layer");
  }
  const auto kinds = config.strings("layer_types");
  if (!kinds || kinds->empty()) return;
  static constexpr struct {
    const char *key, *local;
  } kCounts[] = {
      {"num_attention_heads", "num_sliding_attention_heads"},
      {"num_attention_heads", "attention_other_setting.num_attention_heads"},
      {"num_key_value_heads", "attention_other_setting.num_attention_groups"},
      {"num_key_value_heads", "swa_num_key_value_heads"},
  };
  const auto list = [&](const char* key, int64_t local) {
    const auto count = config.f64(key);
    if (!count || *count == static_cast<double>(local)) return;
    std::vector<double> counts;
    for (const std::string& kind : *kinds) {
      counts.push_back(kind == "sliding_attention" ? static_cast<double>(local) : *count);
    }
    config.set(key, counts);
  };
  const families::Family* family = families::find_model_type(config.model_type());
  const int64_t factor = family == nullptr ? 1 : family->window_kv_factor;
  const auto kv_heads = config.i64("num_key_value_heads");
  const bool says = config.has("swa_num_key_value_heads");
  for (const auto& [key, local] : kCounts) {
    const auto count = config.i64(local);
    config.erase(local);
    if (count) list(key, *count);
  }
  if (factor > 1 && !says && kv_heads && *kv_heads > 0 && *kv_heads < INT32_MAX / factor) {
    list("num_key_value_heads", *kv_heads * factor);
  }
}

void settle_rotary_shares(HfConfig& config) {
  const auto head = config.i64("head_dim");
  if (!head || *head < 2) return;
  const auto width = static_cast<double>(*head);
  for (const char* key : {"partial_rotary_factor", "local_rotary_factor"}) {
    const auto share = config.f64(key);
    if (!share || *share <= 0 || *share >= 1) continue;
    const double settled = std::floor(*share * width + 1e-6) / width;
    if (settled > 0 && std::abs(settled - *share) > 1e-9) config.set(key, settled);
  }
}

}  // namespace ktx::input

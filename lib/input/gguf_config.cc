#include "lib/input/gguf_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "lib/families/family.h"
#include "lib/input/gguf_config_read.h"
#include "lib/support/strings.h"

namespace ktx::input {
namespace {

using families::ConfigKey;
using families::Family;
using families::GgufSign;
using families::KeyKind;
using families::KeyWeight;
using families::RouterKind;

// What the GGUF itself says it is.
struct GgufFamily {
  const Family* family = nullptr;  // null for an unknown architecture
  bool sure = true;                // false when the signs of another could not be looked for
};

const Family* family_of(const HfConfig& config) {
  return families::find_family(
      config.model_type(), config.strings("architectures").value_or(std::vector<std::string>()));
}

// Whether the two compute the same from a GGUF of their architecture; only a config can then
// say which one it is.
bool compute_alike(const Family& a, const Family& b) {
  return std::string_view(a.gguf_arch) == b.gguf_arch && a.attention == b.attention &&
         a.experts.layers == b.experts.layers && a.experts.shared == b.experts.shared &&
         a.experts.router == b.experts.router;
}

// Nothing where the GGUF does not say: a file of metadata alone has no tensors.
std::optional<bool> has_sign(GgufKeys& keys, const GgufSign& sign) {
  if (sign.pre[0] != '\0') {
    const GgufValue* pre = keys.gguf.value("tokenizer.ggml.pre");
    return pre && pre->string() == sign.pre;
  }
  if (sign.tensor[0] != '\0') {
    if (keys.any_layer(sign.tensor)) return true;
    return keys.gguf.tensors().empty() ? std::nullopt : std::optional(false);
  }
  const GgufValue* value = keys.gguf.value(keys.full(sign.key));
  if (sign.text[0] != '\0') return value && value->string() == sign.text;
  const bool set = value && value->boolean().value_or(false);
  const uint64_t number = set ? 1 : keys.gguf.u64(keys.full(sign.key)).value_or(0);
  if (number == 0 && !sign.always_written) return std::nullopt;
  return number >= sign.min && number <= sign.max;
}

GgufFamily family_of_gguf(GgufKeys& keys) {
  GgufFamily rest;
  for (const Family* family : families::all_families()) {
    if (!family->stored_as(keys.architecture)) continue;
    if (family->gguf_signs.empty()) {
      rest.family = family;
      continue;
    }
    bool none = false;
    for (const GgufSign& sign : family->gguf_signs) {
      const auto found = has_sign(keys, sign);
      if (found == true) return {family};
      none |= found == false;
    }
    rest.sure &= none;
  }
  return rest;
}

std::string_view expected_of(KeyKind kind) {
  switch (kind) {
    case KeyKind::Count:
      return "a whole number from 1 to 2147483647";
    case KeyKind::Counts:
      return "a whole number from 1 to 2147483647, or one for each layer";
    case KeyKind::Natural:
      return "a whole number from 0 to 2147483647";
    case KeyKind::CountOrNull:
      return "a whole number from 1 to 2147483647, or null";
    case KeyKind::Positive:
      return "a finite number above 0";
    case KeyKind::Amount:
      return "a finite number, 0 or above";
    case KeyKind::Amounts:
      return "a finite number, 0 or above, for each layer";
    case KeyKind::Numbers:
      return "a finite number for each layer";
    case KeyKind::Flag:
      return "true or false";
    case KeyKind::Text:
      return "a text";
    case KeyKind::Texts:
      return "a list of texts";
  }
  return "";
}

// A count for each layer; one count where all are equal, as any kind of count may be written.
std::optional<ConfigScalar> as_counts(const std::vector<double>& list, KeyKind kind) {
  if (list.empty()) return std::nullopt;
  for (const double count : list) {
    if (count != std::floor(count) || count < (kind == KeyKind::Natural ? 0 : 1) ||
        count > INT32_MAX) {
      return std::nullopt;
    }
  }
  if (std::ranges::count(list, list[0]) == std::ssize(list)) return static_cast<int64_t>(list[0]);
  return kind == KeyKind::Counts ? std::optional<ConfigScalar>(list) : std::nullopt;
}

// The value as its kind holds it (40.0 becomes 40 for a count), or nothing.
std::optional<ConfigScalar> as_kind(const ConfigScalar& value, KeyKind kind) {
  HfConfig holder;
  holder.set("x", value);
  if (kind == KeyKind::Flag) {
    const auto flag = holder.boolean("x");
    return flag ? std::optional<ConfigScalar>(*flag) : std::nullopt;
  }
  if (kind == KeyKind::Text) {
    const auto text = holder.string("x");
    return text ? std::optional<ConfigScalar>(*text) : std::nullopt;
  }
  if (kind == KeyKind::Texts) {
    const auto texts = holder.strings("x");
    return texts ? std::optional<ConfigScalar>(*texts) : std::nullopt;
  }
  if (kind == KeyKind::Amounts || kind == KeyKind::Numbers) {
    const auto list = holder.floats("x");
    const bool fit = list && std::ranges::all_of(*list, [&](double amount) {
                       return std::isfinite(amount) && (amount >= 0 || kind == KeyKind::Numbers);
                     });
    return fit ? std::optional<ConfigScalar>(*list) : std::nullopt;
  }
  if (kind == KeyKind::Positive || kind == KeyKind::Amount) {
    const auto number = holder.f64("x");
    if (!number || !std::isfinite(*number) || *number < 0) return std::nullopt;
    if (*number == 0 && kind == KeyKind::Positive) return std::nullopt;
    return *number;
  }
  if (const auto* list = std::get_if<std::vector<double>>(&value)) {
    return as_counts(*list, kind);
  }
  if (kind == KeyKind::CountOrNull && holder.is_null("x")) return nullptr;
  const auto count = holder.i64("x");
  if (!count || *count < (kind == KeyKind::Natural ? 0 : 1) || *count > INT32_MAX)
    return std::nullopt;
  return *count;
}

bool same(const ConfigScalar& a, const ConfigScalar& b) {
  const auto* x = std::get_if<double>(&a);
  const auto* y = std::get_if<double>(&b);
  if (!x || !y) return a == b;
  // Converters go through f32 and multiply by 0.1: seven digits are what is left.
  return std::fabs(*x - *y) <= 1e-6 * std::max(std::fabs(*x), std::fabs(*y));
}

// The types of a family's layers where a file has a window and does not say which have it.
std::optional<ConfigScalar> layer_types_of(const Family& family, const HfConfig& values) {
  constexpr int64_t kMostLayers = 4096;
  const auto layers = values.i64("num_hidden_layers");
  const bool windows = values.i64("sliding_window").value_or(0) > 0;
  if (!windows || !layers || *layers < 1 || *layers > kMostLayers || !family.windows_by_period()) {
    return std::nullopt;
  }
  const int64_t period = values.i64("sliding_window_pattern").value_or(family.window_period);
  std::vector<std::string> types;
  for (int64_t i = 0; i < *layers; ++i) {
    const bool window = family.has_window(i, period);
    types.emplace_back(window ? "sliding_attention" : "full_attention");
  }
  return types;
}

// The value that a column "meaning of absence" stands for.
std::optional<ConfigScalar> meaning(std::string_view absent, const ConfigKey& row,
                                    const Family& family, const HfConfig& values) {
  if (absent.empty()) return std::nullopt;
  if (absent == "null") return nullptr;
  if (absent == "=head_dim" && row.key == std::string_view("head_dim")) {
    const auto hidden = values.i64("hidden_size");
    const auto heads = values.i64("num_attention_heads");
    if (!hidden || !heads || *heads <= 0) return std::nullopt;
    return *hidden / *heads;
  }
  if (absent == "=hidden_size/num_attention_heads") {
    const auto hidden = values.i64("hidden_size"), heads = values.i64("num_attention_heads");
    if (!hidden || !heads || *heads <= 0 || *hidden % *heads != 0) return std::nullopt;
    return *hidden / *heads;
  }
  if (absent == "=windows") return layer_types_of(family, values);
  if (absent.starts_with('=')) {
    const ConfigValue* other = values.find(absent.substr(1));
    return other ? std::optional(other->value) : std::nullopt;
  }
  if (row.kind == KeyKind::Text) return std::string(absent);
  if (row.kind == KeyKind::Flag) return absent == "true";
  double number = 0;
  std::from_chars(absent.data(), absent.data() + absent.size(), number);
  for (const families::ConfigAlias& alias : family.rows.aliases) {
    if (alias.value == nullptr || row.key != std::string_view(alias.key)) continue;
    const auto other = values.f64(alias.other);
    if (!other) return std::nullopt;
    number = alias.value(number, *other);
  }
  return as_kind(number, row.kind);
}

bool is_scaling(std::string_view key) {
  return key.starts_with("rope_scaling.") && key != "rope_scaling.rope_type";
}

// Merges row by row; what it reports it names once, at the end.
class Merger {
 public:
  Merger(const HfConfig& config, GgufKeys& keys, Trust trust, bool all_differences)
      : config_(config),
        keys_(keys),
        trust_(trust),
        all_differences_(all_differences),
        result_(config) {}

  HfConfig run() {
    const GgufFamily of_gguf = family_of_gguf(keys_);
    const Family* family = choose_family(of_gguf);
    if (!family) return std::move(result_);
    if (result_.model_type().empty()) {
      set_type(*family);
    }
    family_ = family;
    for (std::span<const ConfigKey> stretch : family->rows.keys) {
      for (const ConfigKey& row : stretch) merge(row);
    }
    fill_method(*family);
    if (report_differences()) return std::move(result_);
    check_sizes(*family);
    report();
    return std::move(result_);
  }

 private:
  bool alone() const { return config_.empty(); }
  std::string gguf_name() const { return keys_.gguf.path(); }

  void set_type(const Family& family) {
    result_.set("model_type", std::string(family.first_model_type()), ConfigOrigin::Gguf);
  }

  // The family by whose keys to read; null when nothing is known of the model.
  const Family* choose_family(const GgufFamily& of_gguf) {
    const std::string type = config_.model_type();
    if (!of_gguf.family) {
      if (alone()) result_.set("model_type", keys_.architecture, ConfigOrigin::Gguf);
      return family_of(config_);
    }
    if (type.empty()) return of_gguf.family;
    ++compared_;
    const Family* of_config = family_of(config_);
    // For a model that sees, a file may have either type.
    const Family* outer =
        families::find_model_type(config_.string("outer_model_type").value_or(""));
    const std::string_view arch = of_gguf.family->gguf_arch;
    if (outer && arch == outer->gguf_arch && (!of_config || arch != of_config->gguf_arch)) {
      result_.set("model_type", *config_.string("outer_model_type"));
      return outer;
    }
    if (of_config && std::string_view(of_config->gguf_arch) == of_gguf.family->gguf_arch &&
        (compute_alike(*of_config, *of_gguf.family) || !of_gguf.sure)) {
      return of_config;
    }
    disagree(KeyWeight::Structural, "model_type", fmt::format("'{}'", printable(type)),
             fmt::format("holds a model of type '{}' (architecture '{}')",
                         of_gguf.family->first_model_type(), keys_.architecture));
    if (trust_ == Trust::Config && of_config) return of_config;
    set_type(*of_gguf.family);
    return of_gguf.family;
  }

  void merge(const ConfigKey& row) {
    if (is_scaling(row.key) && result_.string("rope_scaling.rope_type") == "default") {
      result_.erase(row.key);
      return;
    }
    const auto from_config = config_value(row);
    const auto from_gguf = gguf_value(row);
    const std::string key(row.key);
    if (from_config && from_gguf) {
      ++compared_;
      if (same(*from_config, *from_gguf)) return result_.set(key, *from_config);
      merge_different(row, *from_config, *from_gguf);
    } else if (from_config) {
      result_.set(key, *from_config);
      const auto silent = meaning(row.gguf_absent, row, *family_, result_);
      const bool in_tensor =
          is_scaling(key) && result_.string("rope_scaling.rope_type") == "llama3";
      if (in_tensor || (silent && same(*silent, *from_config))) return;
      from_config_.push_back(fmt::format("{} = {}", key, describe(*from_config)));
    } else if (from_gguf) {
      result_.set(key, *from_gguf, ConfigOrigin::Gguf);
      const auto silent = meaning(row.config_absent, row, *family_, result_);
      if (alone() || row.config_absent == std::string_view("=file")) return;
      if (silent && same(*silent, *from_gguf)) return;
      from_gguf_.push_back(fmt::format("{} = {}", key, describe(*from_gguf)));
    } else {
      fill_absent(row);
    }
  }

  std::optional<ConfigScalar> config_value(const ConfigKey& row) {
    const ConfigValue* value = config_.find(row.key);
    if (!value || (config_.is_null(row.key) && row.kind != KeyKind::CountOrNull)) {
      return std::nullopt;
    }
    // The parameters of a scaling that was overruled do not fit the other one.
    if (is_scaling(row.key) && scaling_from_gguf_) return std::nullopt;
    const auto scalar = as_kind(value->value, row.kind);
    if (!scalar) {
      const bool list = std::holds_alternative<std::vector<double>>(value->value);
      const bool layers = list && as_kind(value->value, KeyKind::Counts);
      keys_.diags.error({config_.file()}, "I004",
                        config_.in_own_words(fmt::format(
                            "key '{}' is {}, expected {}", row.key, describe_layers(value->value),
                            layers ? "the same number for every layer" : expected_of(row.kind))));
    }
    return scalar;
  }

  std::optional<ConfigScalar> gguf_value(const ConfigKey& row) {
    if (is_scaling(row.key) && scaling_from_config_) return std::nullopt;
    const auto value = read_key(row.read, keys_, row.gguf_key);
    if (!value) return std::nullopt;
    // Converters write 0 where a model has none of what the key counts.
    const auto* count = std::get_if<int64_t>(&*value);
    const bool counts = row.kind == KeyKind::Count || row.kind == KeyKind::Counts;
    if (count && *count == 0 && counts && row.gguf_absent[0] != '\0') {
      return std::nullopt;
    }
    const auto scalar = as_kind(*value, row.kind);
    if (!scalar) {
      keys_.diags.error({gguf_name()}, "I004",
                        fmt::format("key '{}' is {}, expected {}", keys_.full(row.gguf_key),
                                    describe(*value), expected_of(row.kind)));
    }
    return scalar;
  }

  void merge_different(const ConfigKey& row, const ConfigScalar& from_config,
                       const ConfigScalar& from_gguf) {
    const std::string key(row.key);
    // Old converters wrote the output matrix of tied models too: nothing differs.
    if (key == "tie_word_embeddings" && from_gguf == ConfigScalar(false)) {
      return result_.set(key, from_gguf, ConfigOrigin::Gguf);
    }
    const std::string place = row.gguf_key[0] == '\0'
                                  ? "in the tensors"
                                  : fmt::format("(key '{}')", keys_.full(row.gguf_key));
    disagree(row.weight, key, describe(from_config),
             fmt::format("has {} {}", describe(from_gguf), place));
    const bool gguf_wins = trust_ == Trust::Gguf;
    result_.set(key, gguf_wins ? from_gguf : from_config,
                gguf_wins ? ConfigOrigin::Gguf : ConfigOrigin::Config);
    if (key != "rope_scaling.rope_type") return;
    scaling_from_gguf_ = gguf_wins;
    scaling_from_config_ = !gguf_wins;
  }

  void disagree(KeyWeight weight, std::string_view key, std::string_view in_config,
                std::string_view in_gguf) {
    const bool is_error = weight == KeyWeight::Structural && trust_ == Trust::Neither;
    differences_.push_back(
        {is_error, fmt::format("{} is {}, but {} {}{}", key, in_config, gguf_name(), in_gguf,
                               is_error                ? ""
                               : trust_ == Trust::Gguf ? "; using the GGUF's"
                                                       : "; using the config's")});
  }

  // True when it is the config of another model.
  bool report_differences() {
    constexpr auto is_error = [](const Difference& difference) { return difference.is_error; };
    const auto errors = std::count_if(differences_.begin(), differences_.end(), is_error);
    if (errors >= kOtherModel && !all_differences_) {
      keys_.diags
          .error({config_.file()}, "T002",
                 fmt::format("this is the config of another model ({}), and {} holds {}: {} of {} "
                             "keys differ",
                             facts_of(config_), gguf_name(), gguf_facts(), differences_.size(),
                             compared_))
          .help(
              "give the config of this model; --hf-config-details lists the keys, and "
              "--trust=config or --trust=gguf says which one is right");
      return true;
    }
    for (const Difference& difference : differences_) {
      Diagnostic& diag =
          keys_.diags.report(difference.is_error ? Severity::Error : Severity::Warning,
                             {config_.file()}, "T002", difference.text);
      if (difference.is_error) {
        diag.help(
            "give the config of this model, or say which one is right: --trust=config or "
            "--trust=gguf");
      } else if (trust_ == Trust::Neither) {
        diag.help("--trust=gguf uses the GGUF's");
      }
    }
    return errors >= kOtherModel;
  }

  // "qwen3, 36 layers, width 4096"
  static std::string facts_of(const HfConfig& config) {
    std::string facts = printable(config.model_type());
    if (const auto layers = config.i64("num_hidden_layers")) {
      facts += fmt::format(", {} layers", *layers);
    }
    if (const auto width = config.i64("hidden_size")) facts += fmt::format(", width {}", *width);
    return facts;
  }
  std::string gguf_facts() const {
    DiagSink ignored;
    HfConfig nothing;
    GgufKeys keys{keys_.gguf, ignored, keys_.architecture};
    return facts_of(Merger(nothing, keys, Trust::Neither, false).run());
  }

  void fill_absent(const ConfigKey& row) {
    const std::string key(row.key);
    const auto rope_type = result_.string("rope_scaling.rope_type");
    if (is_scaling(key) && rope_type != "yarn") return;
    const auto value =
        meaning(alone() ? row.gguf_absent : row.config_absent, row, *family_, result_);
    if (!value) {
      if (config_.is_null(key)) return;  // stays null
      result_.erase(key);
      return;
    }
    result_.set(key, *value, ConfigOrigin::Default);
    if (key == "scoring_func" && *value == ConfigScalar(std::string("sigmoid"))) {
      keys_.deduced.push_back(
          fmt::format("'{}' is missing; taking sigmoid, as the model has correction biases "
                      "(exp_probs_b)",
                      keys_.full(row.gguf_key)));
    }
  }

  // topk_method has no key in a GGUF; groups and biases say it.
  void fill_method(const Family& family) {
    const bool by_two = family.experts.router == RouterKind::GroupsByTwoBest;
    if (!by_two && family.experts.router != RouterKind::GroupsByBest) return;
    if (result_.string("topk_method")) return;
    if (const char* value = family.find_default("topk_method")) {
      std::string_view method = value;  // "\"greedy\""
      method = method.substr(1, method.size() - 2);
      return result_.set("topk_method", std::string(method), ConfigOrigin::Default);
    }
    const bool groups = result_.i64("n_group").value_or(1) > 1;
    const char* method = by_two ? "noaux_tc" : groups ? "group_limited_greedy" : "greedy";
    result_.set("topk_method", std::string(method), ConfigOrigin::Default);
  }

  void check_sizes(const Family& family) {
    const std::string& file = alone() ? gguf_name() : config_.file();
    const auto wrong = [&](std::string message) {
      keys_.diags.error({file}, "I005", result_.in_own_words(std::move(message)));
    };
    const auto value = [&](const char* key) { return result_.i64(key).value_or(0); };
    // Bounds well above any model, so that nothing later loops over a lie.
    const std::pair<const char*, int64_t> kLimits[] = {
        {"num_hidden_layers", 4096},       {"num_attention_heads", 65536},
        {"hidden_size", 1 << 24},          {family.experts.count_key, 65536},
        {"vocab_size", 1 << 26},           {"intermediate_size", 1 << 26},
        {"moe_intermediate_size", 1 << 26}};
    for (const auto& [key, limit] : kLimits) {
      if (value(key) > limit) {
        wrong(fmt::format("'{}' is {}, expected at most {}", key, value(key), limit));
      }
    }
    const auto heads = value("num_attention_heads"), kv_heads = value("num_key_value_heads");
    if (heads > 0 && kv_heads > 0 && heads % kv_heads != 0) {
      wrong(fmt::format(
          "'num_attention_heads' is {}, expected a multiple of 'num_key_value_heads', which is {}",
          heads, kv_heads));
    }
    const auto experts = value(family.experts.count_key);
    const auto used = value("num_experts_per_tok");
    if (experts > 0 && used > experts) {
      wrong(fmt::format("'num_experts_per_tok' is {}, expected at most the number of experts, {}",
                        used, experts));
    }
    const auto groups = std::max<int64_t>(value("n_group"), 1);
    if (experts > 0 && experts % groups != 0) {
      wrong(fmt::format("'n_group' is {}, expected a divisor of the number of experts, {}", groups,
                        experts));
    }
    if (value("topk_group") > groups) {
      wrong(fmt::format("'topk_group' is {}, expected at most 'n_group', {}", value("topk_group"),
                        groups));
    }
  }

  void report() {
    if (!from_config_.empty()) {
      keys_.diags.note({gguf_name()}, "I003",
                       fmt::format("taken from {}, as the GGUF lacks it: {}", config_.file(),
                                   join(from_config_, ", ")));
    }
    if (!from_gguf_.empty()) {
      keys_.diags.note({config_.file()}, "I003",
                       fmt::format("taken from {}, as the config lacks it: {}", gguf_name(),
                                   join(from_gguf_, ", ")));
    }
    for (const std::string& sentence : keys_.deduced) {
      keys_.diags.note({gguf_name()}, "I006", sentence);
    }
  }

  const HfConfig& config_;
  GgufKeys& keys_;
  Trust trust_;
  bool all_differences_;
  const Family* family_ = nullptr;  // whose keys are merged
  HfConfig result_;
  bool scaling_from_gguf_ = false;
  bool scaling_from_config_ = false;
  std::vector<std::string> from_config_;
  std::vector<std::string> from_gguf_;
  struct Difference {
    bool is_error;
    std::string text;
  };
  std::vector<Difference> differences_;
  int compared_ = 0;                           // keys that both have
  static constexpr ptrdiff_t kOtherModel = 3;  // errors; fewer may be an edited config
};

}  // namespace

HfConfig config_from_gguf(const GgufFile& gguf, DiagSink& diags) {
  HfConfig nothing;
  nothing.set_file(gguf.path());
  nothing.set_of_gguf();
  return merge_configs(nothing, gguf, Trust::Neither, diags);
}

HfConfig merge_configs(const HfConfig& config, const GgufFile& gguf, Trust trust, DiagSink& diags,
                       bool all_differences) {
  GgufKeys keys{gguf, diags, std::string(gguf.architecture())};
  return Merger(config, keys, trust, all_differences).run();
}

}  // namespace ktx::input

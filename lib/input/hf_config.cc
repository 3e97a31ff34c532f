#include "lib/input/hf_config.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>

#include "lib/families/config_form.h"
#include "lib/families/family.h"
#include "lib/input/layer_lists.h"
#include "lib/support/mapped_file.h"
#include "lib/support/strings.h"

namespace ktx::input {
namespace {

constexpr size_t kMaxConfigBytes = size_t{16} << 20;
constexpr size_t kMaxDepth = 32;
constexpr size_t kMaxConfigKeys = 100000;

// Numbers that Python writes and JSON does not have. Each is read as a zero of the same length in a
// spelling that nothing writes, so that places in messages stay right.
struct PythonNumber {
  std::string_view name, stand_in;
  double value;
};
constexpr PythonNumber kPythonNumbers[] = {
    {"Infinity", "0e+00000", std::numeric_limits<double>::infinity()},
    {"NaN", "0E0", std::numeric_limits<double>::quiet_NaN()},
};

// The text with stand-ins; strings are left as they are.
std::string without_python_numbers(std::string_view text) {
  std::string json(text);
  bool quoted = false;
  for (size_t i = 0; i < json.size(); ++i) {
    if (quoted && json[i] == '\\') {
      ++i;
    } else if (json[i] == '"') {
      quoted = !quoted;
    } else if (!quoted && (json[i] == 'I' || json[i] == 'N')) {
      for (const PythonNumber& number : kPythonNumbers) {
        if (!std::string_view(json).substr(i).starts_with(number.name)) continue;
        json.replace(i, number.name.size(), number.stand_in);
      }
    }
  }
  return json;
}

// Receives JSON piece by piece and fills the flat map, so that depth and size
// are bounded while reading and no tree is ever built.
class Flattener : public nlohmann::json_sax<nlohmann::json> {
 public:
  explicit Flattener(HfConfig& config) : config_(config) {}

  std::string failure;
  size_t failure_at = 0;  // byte, from 1; 0 when unknown

  bool null() override { return scalar(nullptr); }
  bool boolean(bool value) override { return scalar(value); }
  bool number_integer(number_integer_t value) override { return scalar(value); }
  bool number_unsigned(number_unsigned_t value) override {
    if (value > static_cast<uint64_t>(INT64_MAX)) return scalar(static_cast<double>(value));
    return scalar(static_cast<int64_t>(value));
  }
  bool number_float(number_float_t value, const string_t& written) override {
    for (const PythonNumber& number : kPythonNumbers) {
      if (written == number.stand_in) return scalar(number.value);
      if (written == "-" + std::string(number.stand_in)) return scalar(-number.value);
    }
    return scalar(value);
  }
  bool string(string_t& value) override { return scalar(std::move(value)); }
  bool binary(binary_t&) override { return false; }

  bool start_object(size_t) override { return open(false); }
  bool start_array(size_t) override { return open(true); }
  bool key(string_t& key) override {
    frames_.back().key = std::move(key);
    return true;
  }
  bool end_object() override {
    frames_.pop_back();
    return true;
  }
  bool end_array() override {
    Frame frame = std::move(frames_.back());
    frames_.pop_back();
    if (frame.nested) return true;
    return store_array(frame.path, frame.elements);
  }
  bool parse_error(size_t position, const std::string&,
                   const nlohmann::detail::exception& error) override {
    failure_at = position;
    failure = error.what();
    // "[json.exception…] parse error at line 1, column 2: what": the place is ours to say.
    if (const size_t colon = failure.find(": "); colon != failure.npos) failure.erase(0, colon + 2);
    return false;
  }

 private:
  struct Frame {
    bool is_array = false;
    bool nested = false;  // an array with something else than scalars in it
    std::string path;
    std::string key;                     // of the current member
    std::vector<ConfigScalar> elements;  // of an array so far
    size_t size = 0;                     // of an array so far
  };

  bool fail(std::string what) {
    failure = std::move(what);
    return false;
  }

  std::string child_path() const {
    if (frames_.empty()) return "";
    const Frame& frame = frames_.back();
    const std::string leaf = frame.is_array ? std::to_string(frame.size) : frame.key;
    return frame.path.empty() ? leaf : frame.path + "." + leaf;
  }

  bool open(bool is_array) {
    if (frames_.size() >= kMaxDepth)
      return fail(fmt::format("nested deeper than {} levels", kMaxDepth));
    if (frames_.empty() && is_array) return fail("an array, expected an object");
    Frame frame;
    frame.is_array = is_array;
    frame.path = child_path();
    if (!frames_.empty() && frames_.back().is_array) {
      if (!flatten(frames_.back())) return false;
      ++frames_.back().size;
    }
    frames_.push_back(std::move(frame));
    return true;
  }

  bool scalar(ConfigScalar value) {
    if (frames_.empty()) return fail("a single value, expected an object");
    Frame& frame = frames_.back();
    if (!frame.is_array) return store(child_path(), std::move(value));
    if (frame.nested && !store(child_path(), value)) return false;
    if (!frame.nested) frame.elements.push_back(std::move(value));
    ++frame.size;
    return ++count_ <= kMaxConfigKeys * 10 || fail("too many values");
  }

  // An array that turns out to hold more than scalars: what it held so far goes
  // under "path.0", "path.1", …
  bool flatten(Frame& frame) {
    for (size_t i = 0; i < frame.elements.size(); ++i) {
      if (!store(fmt::format("{}.{}", frame.path, i), std::move(frame.elements[i]))) return false;
    }
    frame.elements.clear();
    frame.nested = true;
    return true;
  }

  bool store_array(const std::string& path, std::vector<ConfigScalar>& elements) {
    std::vector<double> numbers;
    std::vector<std::string> texts;
    for (const ConfigScalar& element : elements) {
      if (const auto* integer = std::get_if<int64_t>(&element)) {
        numbers.push_back(static_cast<double>(*integer));
      } else if (const auto* number = std::get_if<double>(&element)) {
        numbers.push_back(*number);
      } else if (const auto* text = std::get_if<std::string>(&element)) {
        texts.push_back(*text);
      }
    }
    if (numbers.size() == elements.size()) return store(path, std::move(numbers));
    if (texts.size() == elements.size()) return store(path, std::move(texts));
    for (size_t i = 0; i < elements.size(); ++i) {
      if (!store(fmt::format("{}.{}", path, i), std::move(elements[i]))) return false;
    }
    return true;
  }

  bool store(std::string path, ConfigScalar value) {
    if (config_.values().size() >= kMaxConfigKeys)
      return fail(fmt::format("more than {} keys", kMaxConfigKeys));
    config_.set(std::move(path), std::move(value));
    return true;
  }

  HfConfig& config_;
  std::vector<Frame> frames_;
  size_t count_ = 0;
};

// "LINE:COLUMN" of a byte of a text.
std::string place_of(std::string_view text, size_t byte) {
  const std::string_view before = text.substr(0, byte > 0 ? byte - 1 : 0);
  const auto line = 1 + std::count(before.begin(), before.end(), '\n');
  const size_t newline = before.rfind('\n');
  const size_t column = newline == before.npos ? before.size() + 1 : before.size() - newline;
  return fmt::format("{}:{}", line, column);
}

std::optional<int64_t> to_i64(double value) {
  // 2^63 itself does not fit, and -2^63 does.
  if (!(value >= -9223372036854775808.0 && value < 9223372036854775808.0)) return std::nullopt;
  if (value != std::floor(value)) return std::nullopt;
  return static_cast<int64_t>(value);
}

template <class T>
const T* get(const ConfigValue* value) {
  return value ? std::get_if<T>(&value->value) : nullptr;
}

}  // namespace

Result<HfConfig> HfConfig::read(const std::string& path) {
  std::error_code unknown;
  const bool folder = std::filesystem::is_directory(path, unknown);
  const std::string file = folder ? path + "/config.json" : path;
  const std::string text = KTX_TRY(read_text_file(file, kMaxConfigBytes));
  return parse(text, file);
}

Result<HfConfig> HfConfig::parse(std::string_view text, std::string file) {
  HfConfig config;
  config.file_ = std::move(file);
  Flattener flattener(config);
  if (!nlohmann::json::sax_parse(without_python_numbers(text), &flattener)) {
    const std::string place =
        flattener.failure_at > 0 ? ":" + place_of(text, flattener.failure_at) : "";
    return Error{fmt::format("{}{}: not a usable JSON object: {}", config.file_, place,
                             printable(flattener.failure, 300))};
  }
  config.normalise();
  return config;
}

const ConfigValue* HfConfig::find(std::string_view key) const {
  const auto found = values_.find(key);
  return found == values_.end() ? nullptr : &found->second;
}

bool HfConfig::is_null(std::string_view key) const {
  return get<std::nullptr_t>(find(key));
}

std::optional<int64_t> HfConfig::i64(std::string_view key) const {
  const ConfigValue* value = find(key);
  if (const auto* integer = get<int64_t>(value)) return *integer;
  if (const auto* number = get<double>(value)) return to_i64(*number);
  return std::nullopt;
}

std::optional<double> HfConfig::f64(std::string_view key) const {
  const ConfigValue* value = find(key);
  if (const auto* integer = get<int64_t>(value)) return static_cast<double>(*integer);
  if (const auto* number = get<double>(value)) return *number;
  return std::nullopt;
}

std::optional<bool> HfConfig::boolean(std::string_view key) const {
  const auto* value = get<bool>(find(key));
  return value ? std::optional(*value) : std::nullopt;
}

std::optional<std::string> HfConfig::string(std::string_view key) const {
  const auto* value = get<std::string>(find(key));
  return value ? std::optional(*value) : std::nullopt;
}

std::optional<std::vector<double>> HfConfig::floats(std::string_view key) const {
  const auto* value = get<std::vector<double>>(find(key));
  return value ? std::optional(*value) : std::nullopt;
}

std::optional<std::vector<int64_t>> HfConfig::ints(std::string_view key) const {
  const auto* value = get<std::vector<double>>(find(key));
  if (!value) return std::nullopt;
  std::vector<int64_t> integers;
  for (const double number : *value) {
    const auto integer = to_i64(number);
    if (!integer) return std::nullopt;
    integers.push_back(*integer);
  }
  return integers;
}

std::optional<std::vector<std::string>> HfConfig::strings(std::string_view key) const {
  const ConfigValue* value = find(key);
  if (const auto* texts = get<std::vector<std::string>>(value)) return *texts;
  const auto* empty = get<std::vector<double>>(value);
  if (empty && empty->empty()) return std::vector<std::string>();
  return std::nullopt;
}

void HfConfig::set(std::string key, ConfigScalar value, ConfigOrigin origin) {
  values_.insert_or_assign(std::move(key), ConfigValue{std::move(value), origin});
}

void HfConfig::erase(std::string_view key) {
  const auto found = values_.find(key);
  if (found != values_.end()) values_.erase(found);
}

namespace {

// Gives the value of `from` to `to` unless that has one, and drops `from`.
void rename(HfConfig& config, std::string_view from, std::string_view to) {
  const ConfigValue* value = config.find(from);
  if (!value) return;
  if (!config.has(to) || config.is_null(to))
    config.set(std::string(to), value->value, value->origin);
  config.erase(from);
}

std::vector<std::string> keys_below(const HfConfig& config, const std::string& prefix) {
  std::vector<std::string> keys;
  for (auto at = config.values().lower_bound(prefix);
       at != config.values().end() && at->first.starts_with(prefix); ++at) {
    keys.push_back(at->first);
  }
  return keys;
}

// Hunyuan's "dynamic" scaling with an alpha is another base, whatever the length.
void fold_rope_alpha(HfConfig& config) {
  const auto alpha = config.f64("rope_scaling.alpha");
  const auto base = config.f64("rope_theta");
  if (!alpha || *alpha <= 0 || !base) return;
  auto dim = config.f64("head_dim");
  const auto hidden = config.f64("hidden_size"), heads = config.f64("num_attention_heads");
  if (!dim && hidden && heads && *heads > 0) dim = *hidden / *heads;
  if (!dim || *dim <= 2) return;
  config.set("rope_theta", *base * std::pow(*alpha, *dim / (*dim - 2)));
  config.set("rope_scaling.rope_type", std::string("default"));
}

// ChatGLM multiplies the usual base.
void fold_rope_ratio(HfConfig& config) {
  const auto ratio = config.f64("rope_ratio");
  if (!ratio || config.has("rope_theta")) return;
  config.set("rope_theta", 10000 * *ratio);
  config.erase("rope_ratio");
}

// Joins the settings of two kinds of layers: those of layers with full attention hold for the
// model, and layers with a window have a base of their own.
void join_layer_types(HfConfig& config) {
  for (const std::string& key : keys_below(config, "rope_parameters.full_attention.")) {
    rename(config, key, "rope_parameters." + key.substr(key.rfind('.') + 1));
  }
  rename(config, "rope_parameters.sliding_attention.rope_theta", "rope_local_base_freq");
  rename(config, "rope_parameters.sliding_attention.partial_rotary_factor", "local_rotary_factor");
  for (const std::string& key : keys_below(config, "rope_parameters.sliding_attention.")) {
    config.erase(key);
  }
  // DeepSeek-V4: layers with entries and others.
  rename(config, "rope_parameters.main.rope_theta", "rope_theta");
  rename(config, "rope_parameters.compress.rope_theta", "compress_rope_theta");
  for (const std::string& key : keys_below(config, "rope_parameters.main.")) config.erase(key);
  for (const std::string& key : keys_below(config, "rope_parameters.compress.")) {
    rename(config, key, "rope_parameters." + key.substr(key.rfind('.') + 1));
  }
}

void normalise_rope(HfConfig& config) {
  join_layer_types(config);
  join_rope_lists(config);
  for (const std::string& key : keys_below(config, "rope_parameters.")) {
    const std::string leaf = key.substr(std::string_view("rope_parameters.").size());
    const bool top = leaf == "rope_theta" || leaf == "partial_rotary_factor";
    rename(config, key, top ? leaf : "rope_scaling." + leaf);
  }
  rename(config, "rope_scaling.type", "rope_scaling.rope_type");
  // An explicit null says "none"; transformers 5 says it as "default".
  const bool no_scaling = config.is_null("rope_scaling") || config.is_null("rope_parameters");
  config.erase("rope_scaling");
  config.erase("rope_parameters");
  for (const std::string& key : keys_below(config, "rope_scaling.")) {
    if (config.is_null(key)) config.erase(key);
  }
  if (config.string("rope_scaling.rope_type") == "su") {  // longrope's first name
    config.set("rope_scaling.rope_type", std::string("longrope"));
  }
  if (config.string("rope_scaling.rope_type") == "longrope" &&
      !config.has("rope_scaling.original_max_position_embeddings")) {
    rename(config, "original_max_position_embeddings",
           "rope_scaling.original_max_position_embeddings");
  }
  fold_rope_ratio(config);
  fold_rope_alpha(config);
  const auto type = config.string("rope_scaling.rope_type");
  rename(config, "rope_scaling.mrope_section", "mrope_section");
  if (no_scaling || type == "default" || type == "none" || type == "mrope") {
    for (const std::string& key : keys_below(config, "rope_scaling.")) config.erase(key);
    config.set("rope_scaling.rope_type", std::string("default"));
  }
}

// The config of a model that sees or hears has that of its language model below another key.
constexpr std::string_view kLanguageModel[] = {"text_config.", "language_config.", "llm_config.",
                                               "thinker_config.text_config."};

// The language model's own type is taken where it is known, else that of the whole where that is;
// where both are, the whole's is kept as "outer_model_type".
void lift_language_model(HfConfig& config) {
  for (const std::string_view prefix : kLanguageModel) {
    const std::string below(prefix);
    if (!config.has(below + "hidden_size") || config.has("hidden_size")) continue;
    const std::string outer = config.model_type();
    const std::string inner = config.string(below + "model_type").value_or("");
    const bool known = families::find_model_type(outer) != nullptr;
    const bool keep = known && families::find_model_type(inner) == nullptr;
    for (const std::string& key : keys_below(config, below)) {
      const ConfigValue value = *config.find(key);
      config.erase(key);
      const std::string leaf = key.substr(below.size());
      const bool is_name = leaf == "model_type" || leaf == "architectures";
      if (!is_name || !keep) config.set(leaf, value.value, value.origin);
    }
    if (known && !keep && outer != inner) config.set("outer_model_type", outer);
    return;
  }
}

bool holds(const HfConfig& config, const families::ConfigSign& sign) {
  if (sign.text[0] != '\0') {
    if (const auto texts = config.strings(sign.key)) {
      const auto count = std::ranges::count(*texts, sign.text);
      return count > 0 && (sign.among || count == std::ssize(*texts));
    }
    return config.string(sign.key) == sign.text;
  }
  const int64_t flag = config.boolean(sign.key).value_or(false) ? 1 : 0;
  const int64_t number = config.i64(sign.key).value_or(flag);
  return number >= sign.min && number <= sign.max;
}

// The form in which it was published becomes that of its family.
void apply_form(HfConfig& config) {
  const std::string type = config.model_type();
  for (const families::ConfigForm& form : families::config_forms()) {
    if (type != form.model_type) continue;
    if (!std::ranges::all_of(form.signs, [&](const auto& sign) { return holds(config, sign); })) {
      continue;
    }
    config.set("model_type", std::string(form.becomes));
    for (const families::ConfigAlias& row : form.aliases) {
      if (!config.has(row.alias)) continue;
      config.erase(row.key);
      config.take_alias(row);
    }
    const auto positions = config.i64("max_position_embeddings");
    if (form.behind_padding && positions && !config.has("position_offset")) {
      const int64_t offset = config.i64("pad_token_id").value_or(1) + 1;
      config.set("position_offset", offset);
      config.set("max_position_embeddings", *positions - offset);
    }
    return;
  }
}

// transformers 5 writes {"__float__": "Infinity"} for what is no number of JSON's.
void fold_written_floats(HfConfig& config) {
  constexpr std::string_view kSuffix = ".__float__";
  std::vector<std::string> keys;
  for (const auto& [key, value] : config.values()) {
    if (key.ends_with(kSuffix)) keys.push_back(key);
  }
  for (const std::string& key : keys) {
    const std::string text = config.string(key).value_or("");
    const bool negative = text.starts_with('-');
    for (const PythonNumber& number : kPythonNumbers) {
      if (std::string_view(text).substr(negative ? 1 : 0) != number.name) continue;
      config.set(key.substr(0, key.size() - kSuffix.size()),
                 negative ? -number.value : number.value);
      config.erase(key);
    }
  }
}

// LFM2's code takes two thirds of a feed-forward width, rounded up.
void adjust_width(HfConfig& config) {
  if (config.boolean("block_auto_adjust_ff_dim") != true) return;
  const char* key = config.has("block_ff_dim") ? "block_ff_dim" : "intermediate_size";
  const auto width = config.i64(key);
  if (!width || *width <= 0 || *width > INT32_MAX) return;
  int64_t adjusted = 2 * *width / 3;
  const double factor = config.f64("block_ffn_dim_multiplier").value_or(1);
  const int64_t part = config.i64("block_multiple_of").value_or(256);
  if (!(factor > 0 && factor < 1e3) || part <= 0 || part > INT32_MAX) return;
  adjusted = static_cast<int64_t>(factor * static_cast<double>(adjusted));
  config.set(key, (adjusted + part - 1) / part * part);
  config.set("block_auto_adjust_ff_dim", false);
}

// A letter for each layer: M is a state space, * attention, - a feed-forward part, E experts.
void spell_layer_kinds(HfConfig& config) {
  const auto letters = config.string("hybrid_override_pattern");
  if (!letters || config.has("layer_types") || config.has("layers_block_type")) return;
  std::vector<std::string> kinds;
  for (const char letter : *letters) {
    kinds.emplace_back(letter == 'M'   ? "linear_attention"
                       : letter == '*' ? "full_attention"
                       : letter == '-' ? "mlp"
                                       : "moe");
  }
  config.set("layer_types", kinds);
}

// Which layers have experts, as a number for each (1) or as a list of kinds. Where those are all
// behind the dense ones, that is a count of these.
void count_dense_layers(HfConfig& config) {
  if (const auto flags = config.ints("moe_layer_freq"); flags && !flags->empty()) {
    std::vector<std::string> kinds;
    for (const int64_t flag : *flags) kinds.emplace_back(flag != 0 ? "sparse" : "dense");
    config.erase("moe_layer_freq");
    config.set("mlp_layer_types", kinds);
  }
  const auto kinds = config.strings("mlp_layer_types");
  if (!kinds || config.has("first_k_dense_replace")) return;
  const auto first = std::ranges::find(*kinds, "sparse");
  if (std::ranges::count(first, kinds->end(), "sparse") != kinds->end() - first) return;
  config.set("first_k_dense_replace", static_cast<int64_t>(first - kinds->begin()));
}

// A gate of attention's output that is only said to be there is one for each head. The bound of
// decays is below 0 in configs and a size here.
void name_gates(HfConfig& config) {
  if (config.boolean("gating") == true) config.set("gating", std::string("per-head"));
  for (const char* key :
       {"kda_lower_bound", "linear_attn_config.gate_lower_bound", "linear_lower_bound"}) {
    const auto bound = config.f64(key);
    if (!bound || *bound >= 0) continue;
    config.set(key, -*bound);
    config.take_alias({key, "kda_decay_bound"});
  }
}

// Which layers attend to chosen blocks, as a number for each.
void spell_sparse_layers(HfConfig& config) {
  constexpr std::string_view kFlags = "sparse_attention_config.sparse_attention_freq";
  const auto flags = config.ints(kFlags);
  if (!flags || config.has("layer_types")) return;
  std::vector<std::string> kinds;
  for (const int64_t flag : *flags) {
    kinds.emplace_back(flag != 0 ? "sparse_attention" : "full_attention");
  }
  config.set("layer_types", kinds);
}

// What layers attend to beside a window (DeepSeek-V4): as published, the positions of an entry for
// each layer, and for prediction layers behind them.
void spell_compressed_layers(HfConfig& config) {
  const auto rates = config.ints("compress_ratios");
  const auto layers = config.i64("num_hidden_layers");
  if (rates && layers && *layers >= 0 && *layers <= std::ssize(*rates) &&
      !config.has("layer_types")) {
    std::vector<std::string> kinds;
    for (int64_t i = 0; i < *layers; ++i) {
      const int64_t rate = (*rates)[static_cast<size_t>(i)];
      kinds.emplace_back(rate == 0     ? "sliding_attention"
                         : rate == 4   ? "compressed_sparse_attention"
                         : rate == 128 ? "heavily_compressed_attention"
                                       : fmt::format("entries of {}", rate));
    }
    config.set("layer_types", kinds);
  }
  // transformers: which layers have a table of experts, those at the beginning.
  const auto kinds = config.strings("mlp_layer_types");
  if (!kinds || std::ranges::find(*kinds, "sparse") != kinds->end()) return;
  const auto tables = std::ranges::find(*kinds, "moe") - kinds->begin();
  if (std::ranges::count(*kinds, "hash_moe") != tables) return;
  config.erase("mlp_layer_types");
  config.set("num_hash_layers", static_cast<int64_t>(tables));
}

void fold_layer_kinds(HfConfig& config) {
  auto kinds = config.strings("layer_types");
  if (!kinds) return;
  for (std::string& kind : *kinds) kind = families::layer_kind(kind);
  if (kinds != config.strings("layer_types")) config.set("layer_types", *kinds);
  const auto layers = static_cast<int64_t>(kinds->size());
  if (!config.has("num_hidden_layers")) config.set("num_hidden_layers", layers);
}

// transformers says as a share of a head what DeepSeek-V4's config counts.
void count_rotated(HfConfig& config) {
  const auto part = config.f64("partial_rotary_factor");
  const auto head_dim = config.i64("head_dim");
  if (!config.has("hc_mult") || config.has("qk_rope_head_dim") || !part || !head_dim) return;
  if (!(*part > 0 && *part <= 1) || *head_dim <= 0 || *head_dim > INT32_MAX) return;
  config.set("qk_rope_head_dim",
             static_cast<int64_t>(*part * static_cast<double>(*head_dim) + 1e-6));
}

}  // namespace

void HfConfig::normalise() {
  fold_written_floats(*this);
  lift_language_model(*this);
  spell_layer_kinds(*this);
  spell_sparse_layers(*this);
  spell_compressed_layers(*this);
  spell_layer_lists(*this);
  name_gates(*this);
  count_dense_layers(*this);
  adjust_width(*this);
  fold_layer_kinds(*this);
  apply_form(*this);
  normalise_rope(*this);
  count_rotated(*this);
  rename(*this, "dtype", "torch_dtype");
  const families::Family* family = families::find_family(
      model_type(), strings("architectures").value_or(std::vector<std::string>()));
  if (!family) return;
  for (const families::ConfigAlias& row : family->rows.aliases) take_alias(row);
  fold_layer_kinds(*this);
  list_heads_by_layer(*this);
  settle_rotary_shares(*this);
}

void HfConfig::take_alias(const families::ConfigAlias& row) {
  if (row.key[0] == '\0') return erase(row.alias);
  if (row.value) {
    const auto value = f64(row.alias), other = f64(row.other);
    if (!other) return erase(row.alias);
    // What cannot be right stays, so that the message names it.
    if (value && *value > 0) set(row.alias, row.value(*value, *other));
  }
  if (has(row.alias) && (!has(row.key) || is_null(row.key))) aliases_[row.key] = row.alias;
  rename(*this, row.alias, row.key);
}

namespace {

void replace_quoted(std::string& message, std::string_view key, std::string_view by) {
  const std::string quoted = fmt::format("'{}'", key), own = fmt::format("'{}'", by);
  for (size_t at = message.find(quoted); at != message.npos;
       at = message.find(quoted, at + own.size())) {
    message.replace(at, quoted.size(), own);
  }
}

}  // namespace

std::string HfConfig::in_own_words(std::string message) const {
  for (const auto& [key, alias] : aliases_) replace_quoted(message, key, alias);
  const families::Family* family = of_gguf_ ? families::find_model_type(model_type()) : nullptr;
  if (family == nullptr) return message;
  for (std::span<const families::ConfigKey> stretch : family->rows.keys) {
    for (const families::ConfigKey& row : stretch) {
      if (row.gguf_key[0] == '\0') continue;
      replace_quoted(message, row.key, fmt::format("{}.{}", family->gguf_arch, row.gguf_key));
    }
  }
  return message;
}

std::string describe(const ConfigScalar& value) {
  struct Describer {
    std::string operator()(std::nullptr_t) const { return "null"; }
    std::string operator()(bool value) const { return value ? "true" : "false"; }
    std::string operator()(int64_t value) const { return fmt::format("{}", value); }
    std::string operator()(double value) const { return fmt::format("{}", value); }
    std::string operator()(const std::string& value) const {
      return fmt::format("'{}'", printable(value));
    }
    std::string operator()(const std::vector<double>& values) const {
      if (values.size() > 8) return fmt::format("{} numbers", values.size());
      return fmt::format("[{}]", fmt::join(values, ", "));
    }
    std::string operator()(const std::vector<std::string>& values) const {
      if (values.size() > 8) return fmt::format("{} texts", values.size());
      std::vector<std::string> shown;
      for (const std::string& value : values)
        shown.push_back(fmt::format("'{}'", printable(value)));
      return fmt::format("[{}]", fmt::join(shown, ", "));
    }
  };
  return std::visit(Describer{}, value);
}

std::string describe_layers(const ConfigScalar& value) {
  const auto* list = std::get_if<std::vector<double>>(&value);
  if (list == nullptr || list->empty()) return describe(value);
  const auto other = std::ranges::find_if(*list, [&](double x) { return x != list->front(); });
  if (other == list->end()) return describe(value);
  return fmt::format("{} in layer 0 and {} in layer {}", list->front(), *other,
                     other - list->begin());
}

}  // namespace ktx::input

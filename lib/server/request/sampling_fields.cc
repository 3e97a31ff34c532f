#include "lib/server/request/sampling_fields.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string_view>

namespace ktx::server {
namespace {

constexpr size_t kMaxBiases = 1024;
constexpr size_t kMaxBiasBytes = 4096;  // of a text
constexpr size_t kMaxBreakers = 64;
constexpr size_t kMaxBreakerBytes = 64;

// The tokens that a name stands for: an id, also as text, or the tokens of a text, which is short.
std::optional<std::vector<int32_t>> named_tokens(const Json& name,
                                                 const text::Tokenizer& tokenizer) {
  int64_t id = -1;
  if (name.is_string()) {
    const std::string& text = name.get_ref<const std::string&>();
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), id);
    if (error != std::errc() || end != text.data() + text.size()) {
      if (text.size() > kMaxBiasBytes) return std::nullopt;
      std::vector<int32_t> tokens = tokenizer.encode(text);
      if (tokens.empty()) return std::nullopt;
      return tokens;
    }
  } else if (name.is_number_integer()) {
    id = name.is_number_unsigned() && name.get<uint64_t>() > INT32_MAX ? -1 : name.get<int64_t>();
  }
  if (id < 0 || id >= tokenizer.size()) return std::nullopt;
  return std::vector{static_cast<int32_t>(id)};
}

void add_bias(FieldReader& in, const Json& name, const Json& value,
              const text::Tokenizer& tokenizer, runtime::SamplingOptions& options) {
  const auto tokens = named_tokens(name, tokenizer);
  if (!tokens) {
    return in.fail("logit_bias", fmt::format("'logit_bias' names token {}, expected 0 to {}, or a "
                                             "text of at most {} bytes",
                                             show(name), tokenizer.size() - 1, kMaxBiasBytes));
  }
  // llama.cpp's word for "never".
  const bool never = value.is_boolean() && !value.get<bool>();
  const double bias = never               ? -std::numeric_limits<double>::infinity()
                      : value.is_number() ? value.get<double>()
                                          : std::nan("");
  if (!never && !(bias >= -100 && bias <= 100)) {
    return in.fail("logit_bias", fmt::format("'logit_bias' of token {} is {}, expected a number "
                                             "from -100 to 100, or false",
                                             show(name), show(value)));
  }
  for (const int32_t id : *tokens) options.logit_bias.emplace_back(id, static_cast<float>(bias));
}

// {"15043": -100, "Hello": false}, or llama.cpp's [[15043, -100], ["Hello", false]].
void read_bias(FieldReader& in, const text::Tokenizer& tokenizer,
               runtime::SamplingOptions& options) {
  const Json* biases = in.get("logit_bias");
  if (biases == nullptr) return;
  if (!biases->is_object() && !biases->is_array()) {
    return in.fail("logit_bias", fmt::format("'logit_bias' is {}, expected an object, or a list of "
                                             "[token, bias]",
                                             show(*biases)));
  }
  if (biases->size() > kMaxBiases) {
    return in.fail("logit_bias", fmt::format("'logit_bias' has {} entries, at most {} are possible",
                                             biases->size(), kMaxBiases));
  }
  if (biases->is_object()) {
    for (const auto& [key, value] : biases->items()) {
      add_bias(in, Json(key), value, tokenizer, options);
    }
    return;
  }
  for (const Json& pair : *biases) {
    if (!pair.is_array() || pair.size() != 2) {
      return in.fail("logit_bias", "'logit_bias' has an entry that is no [token, bias]");
    }
    add_bias(in, pair[0], pair[1], tokenizer, options);
  }
}

void read_dry(FieldReader& in, const text::Tokenizer& tokenizer, runtime::DryOptions& dry) {
  if (in.get("dry_sequence_breakers") != nullptr) {
    const std::vector<std::string> texts = in.texts("dry_sequence_breakers", kMaxBreakers);
    for (const std::string& text : texts) {
      if (text.size() <= kMaxBreakerBytes) continue;
      return in.fail("dry_sequence_breakers",
                     fmt::format("'dry_sequence_breakers' has a text of {} bytes, at most {} are "
                                 "possible",
                                 text.size(), kMaxBreakerBytes));
    }
    dry.breakers = dry_breakers(tokenizer, texts);
  } else if (dry.multiplier != 0 && dry.breakers.empty()) {
    dry.breakers = dry_breakers(tokenizer, {"\n", ":", "\"", "*"});
  }
}

struct SamplerRow {
  std::string_view name;
  char letter;
  void (*turn_off)(runtime::SamplingOptions& off);
};
constexpr SamplerRow kSamplers[] = {
#define KTX_SAMPLER(name, letter, statements) \
  {name, letter, [](runtime::SamplingOptions& off) { statements; }},
#include "lib/server/request/samplers.def"
};

// `samplers`: those that are left out are turned off.
void read_samplers(FieldReader& in, runtime::SamplingOptions& options) {
  const Json* given = in.get("samplers");
  if (given == nullptr) return;
  std::vector<std::string> names;
  if (given->is_string()) {
    for (const char letter : given->get_ref<const std::string&>()) names.emplace_back(1, letter);
  } else {
    names = in.texts("samplers", 64);
  }
  const auto row_of = [](const std::string& name) {
    return std::find_if(std::begin(kSamplers), std::end(kSamplers), [&](const SamplerRow& row) {
      return name == row.name || (name.size() == 1 && name[0] == row.letter) ||
             (name == "typical_p" && row.letter == 'y') || (name == "temp" && row.letter == 't');
    });
  };
  ptrdiff_t last = -1;
  std::vector<bool> kept(std::size(kSamplers), false);
  for (const std::string& name : names) {
    const auto place = row_of(name) - std::begin(kSamplers);
    if (place == static_cast<ptrdiff_t>(std::size(kSamplers))) {
      return in.fail("samplers",
                     fmt::format("'samplers' has {}, which does not exist here", show(Json(name))));
    }
    if (place < last) {
      return in.fail("samplers",
                     fmt::format("'samplers' has {} behind another order; the order is {}",
                                 show(Json(name)), dump(sampler_names())));
    }
    last = place;
    kept[static_cast<size_t>(place)] = true;
  }
  for (size_t i = 0; i < kept.size(); ++i) {
    if (!kept[i]) kSamplers[i].turn_off(options);
  }
}

struct NeutralRow {
  const char* name;
  const char* neutral;
  const char* instead;
};
constexpr NeutralRow kNeutral[] = {
#define KTX_NEUTRAL(name, neutral, instead) {name, neutral, instead},
#include "lib/server/request/neutral_fields.def"
};

void refuse_unknown_methods(FieldReader& in) {
  for (const NeutralRow& row : kNeutral) {
    const Json* value = in.get(row.name);
    if (value == nullptr || *value == Json(false) || *value == Json::array()) continue;
    if (*value == Json::parse(row.neutral)) continue;
    in.fail(row.name, fmt::format("'{}' is {}, and only {} is possible here; {}", row.name,
                                  show(*value), row.neutral, row.instead));
  }
}

}  // namespace

std::vector<std::vector<int32_t>> dry_breakers(const text::Tokenizer& tokenizer,
                                               const std::vector<std::string>& texts) {
  std::vector<std::vector<int32_t>> breakers;
  for (const std::string& text : texts) {
    if (text.empty()) continue;
    // Tokens that have it, and what it takes several tokens to say.
    for (int32_t id = 0; id < tokenizer.size(); ++id) {
      if (tokenizer.piece(id).find(text) != std::string_view::npos) breakers.push_back({id});
    }
    std::vector<int32_t> whole = tokenizer.encode(text);
    if (whole.size() > 1) breakers.push_back(std::move(whole));
  }
  return breakers;
}

Json sampler_names() {
  Json names = Json::array();
  for (const SamplerRow& row : kSamplers) names.push_back(row.name);
  return names;
}

void read_sampling(FieldReader& in, uint64_t seed, const text::Tokenizer& tokenizer,
                   runtime::SamplingOptions& options) {
#define KTX_SAMPLING(name, member, low, high) \
  options.member = static_cast<float>(in.number(name, options.member, low, high));
#define KTX_SAMPLING_WHOLE(name, member, low, high) \
  options.member = static_cast<int32_t>(in.whole(name, options.member, low, high));
#include "lib/server/request/sampling_fields.def"
  options.top_n_sigma = std::max(options.top_n_sigma, 0.0f);  // -1 is off, too
  options.top_k = std::max(options.top_k, 0);                 // likewise
  const int64_t mirostat = in.whole("mirostat", options.mirostat ? 2 : 0, 0, 2);
  if (mirostat == 1) {
    in.fail("mirostat", "'mirostat' is 1, and only 0 and 2 are possible here; send 2");
  }
  options.mirostat = mirostat == 2;
  // -1 means "any" to Ollama and llama.cpp.
  const Json* asked = in.get("seed");
  const bool any = asked != nullptr && dump(*asked) == "-1";
  options.seed = any ? seed : in.maybe_seed("seed").value_or(seed);
  read_bias(in, tokenizer, options);
  read_dry(in, tokenizer, options.dry);
  read_samplers(in, options);
  refuse_unknown_methods(in);
}

Json sampling_json(const runtime::SamplingOptions& options) {
  Json json;
#define KTX_SAMPLING(name, member, low, high) json[name] = options.member;
#define KTX_SAMPLING_WHOLE KTX_SAMPLING
#include "lib/server/request/sampling_fields.def"
  json["mirostat"] = options.mirostat ? 2 : 0;
  json["logit_bias"] = Json::object();
  for (const auto& [id, bias] : options.logit_bias) {
    json["logit_bias"][std::to_string(id)] = std::isinf(bias) ? Json(false) : Json(bias);
  }
  return json;
}

}  // namespace ktx::server

#include "lib/server/sampling_fields.h"

#include <fmt/format.h>

#include <charconv>
#include <cstdint>

namespace ktx::server {
namespace {

constexpr size_t kMaxBiases = 1024;

void read_bias(FieldReader& in, int64_t vocab_size, runtime::SamplingOptions& options) {
  const Json* biases = in.object("logit_bias");
  if (biases == nullptr) return;
  if (biases->size() > kMaxBiases) {
    return in.fail("logit_bias", fmt::format("'logit_bias' has {} entries, at most {} are possible",
                                             biases->size(), kMaxBiases));
  }
  for (const auto& [key, value] : biases->items()) {
    int64_t id = -1;
    const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), id);
    if (error != std::errc() || end != key.data() + key.size() || id < 0 || id >= vocab_size) {
      return in.fail("logit_bias", fmt::format("'logit_bias' names token {}, expected 0 to {}",
                                               show(Json(key)), vocab_size - 1));
    }
    const double bias = value.is_number() ? value.get<double>() : 1e9;
    if (!(bias >= -100 && bias <= 100)) {
      return in.fail("logit_bias", fmt::format("'logit_bias' of token {} is {}, expected a number "
                                               "from -100 to 100",
                                               id, show(value)));
    }
    options.logit_bias.emplace_back(static_cast<int32_t>(id), static_cast<float>(bias));
  }
}

}  // namespace

void read_sampling(FieldReader& in, uint64_t seed, int64_t vocab_size,
                   runtime::SamplingOptions& options) {
#define KTX_SAMPLING(name, member, low, high) \
  options.member = static_cast<float>(in.number(name, options.member, low, high));
#include "lib/server/sampling_fields.def"
  options.top_k = static_cast<int32_t>(in.whole("top_k", options.top_k, -1, 1 << 30));
  if (options.top_k < 0) options.top_k = 0;
  options.penalty_window =
      static_cast<int32_t>(in.whole("repeat_last_n", options.penalty_window, -1, 1 << 20));
  const std::optional<int64_t> asked = in.maybe_whole("seed", INT64_MIN, INT64_MAX);
  // -1 means "any" to Ollama and llama.cpp.
  options.seed = asked && *asked != -1 ? static_cast<uint64_t>(*asked) : seed;
  read_bias(in, vocab_size, options);
}

Json sampling_json(const runtime::SamplingOptions& options) {
  Json json;
#define KTX_SAMPLING(name, member, low, high) json[name] = options.member;
#include "lib/server/sampling_fields.def"
  json["top_k"] = options.top_k;
  json["repeat_last_n"] = options.penalty_window;
  json["logit_bias"] = Json::object();
  for (const auto& [id, bias] : options.logit_bias) json["logit_bias"][std::to_string(id)] = bias;
  return json;
}

}  // namespace ktx::server

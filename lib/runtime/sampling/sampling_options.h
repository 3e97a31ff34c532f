// How tokens are chosen. Each option does nothing at its neutral value; sampler.h has the order.
#pragma once

#include <array>
#include <cstdint>
#include <utility>
#include <vector>

namespace ktx::runtime {

// DRY ("don't repeat yourself", p-e-w, text-generation-webui #5677): a token that would continue
// a repetition of `allowed_length` tokens or more loses multiplier * base^(length -
// allowed_length) of its logit. (dry_penalty.h)
struct DryOptions {
  float multiplier = 0;  // 0: off
  float base = 1.75f;
  int32_t allowed_length = 2;
  int32_t window = -1;  // how many last tokens count; -1: all
  // Repetitions do not reach over these: sequences of tokens, in the usual case one token each.
  std::vector<std::vector<int32_t>> breakers;
};

struct SamplingOptions {
  float temperature = 0.8f;      // 0: greedy
  int32_t top_k = 40;            // 0: off
  float top_p = 0.95f;           // 1: off
  float min_p = 0.05f;           // 0: off
  float repetition_penalty = 1;  // 1: off; logits of seen tokens: / if positive, * if negative
  float presence_penalty = 0;    // subtracted once from the logit of a seen token
  float frequency_penalty = 0;   // subtracted as often as the token was seen
  int32_t penalty_window = 64;   // how many last tokens count; -1: all
  // Top-n-sigma (Tang et al., arXiv 2411.07641): logits within n standard deviations of the
  // best one stay. 0: off
  float top_n_sigma = 0;
  // Locally typical sampling (Meister et al., arXiv 2202.00666): the tokens whose surprise is
  // closest to the entropy, with this share of probability. 1: off
  float typical_p = 1;
  // XTC, "exclude top choices" (p-e-w, text-generation-webui #6335): with this probability, of the
  // tokens with at least the threshold's share only the least likely one stays.
  float xtc_probability = 0;  // 0: off
  float xtc_threshold = 0.1f;
  // Dynamic temperature (kalomaze, koboldcpp): from temperature - range to temperature + range by
  // the entropy of what is left. 0: off
  float dynamic_range = 0;
  float dynamic_exponent = 1;
  // Mirostat 2 (Basu et al., arXiv 2007.14966): instead of top_k to XTC, tokens with more
  // surprise than a bound go, which follows the surprise of what was drawn.
  bool mirostat = false;
  float mirostat_tau = 5;  // the surprise that is aimed at, in bits
  float mirostat_eta = 0.1f;
  DryOptions dry;
  uint64_t seed = 0;
  std::vector<std::pair<int32_t, float>> logit_bias;  // token id, added to its logit; -inf: never
};

// Where a sampler is in its random numbers and its surprise: what a session file keeps.
struct SamplerState {
  std::array<uint64_t, 4> random{};
  double mirostat_bound = 0;  // bits; 0: where it begins
  bool operator==(const SamplerState&) const = default;
};

// Greedy decoding without penalties: what `--temp 0` asks for.
SamplingOptions greedy_sampling();

}  // namespace ktx::runtime

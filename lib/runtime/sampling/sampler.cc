#include "lib/runtime/sampling/sampler.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "lib/runtime/sampling/dry_penalty.h"
#include "lib/runtime/sampling/log_softmax.h"

namespace ktx::runtime {
namespace {

constexpr float kMost = std::numeric_limits<float>::max();
constexpr size_t kLanes = 16;

struct Scan {
  float largest = -std::numeric_limits<float>::infinity();
  bool sound = true;  // neither NaN nor +infinity
};

// Lanes of their own, so that the compiler makes vectors of them: 0.04 ms for a
// vocabulary of 150,000 instead of 0.3.
Scan scan(std::span<const float> logits) {
  float largest[kLanes], wrong[kLanes];
  for (size_t lane = 0; lane < kLanes; ++lane) {
    largest[lane] = -std::numeric_limits<float>::infinity();
    wrong[lane] = 0;
  }
  size_t id = 0;
  for (; id + kLanes <= logits.size(); id += kLanes) {
    for (size_t lane = 0; lane < kLanes; ++lane) {
      const float logit = logits[id + lane];
      largest[lane] = logit > largest[lane] ? logit : largest[lane];
      wrong[lane] = logit <= kMost ? wrong[lane] : 1.0f;  // NaN fails every comparison
    }
  }
  Scan result;
  for (; id < logits.size(); ++id) {
    result.largest = std::max(result.largest, logits[id]);
    result.sound &= logits[id] <= kMost;
  }
  for (size_t lane = 0; lane < kLanes; ++lane) {
    result.largest = std::max(result.largest, largest[lane]);
    result.sound &= wrong[lane] == 0;
  }
  return result;
}

// The largest logit; fails on what no distribution can be made of.
Result<float> checked_max(std::span<const float> logits) {
  const Scan found = scan(logits);
  if (!found.sound) {
    const auto bad =
        std::find_if(logits.begin(), logits.end(), [](float logit) { return !(logit <= kMost); });
    return Error{
        fmt::format("the model gave {} as the logit of token {}; its weights may be damaged: "
                    "`ktx-run inspect PLAN --verify` checks them",
                    std::isnan(*bad) ? "NaN (not a number)" : "infinity", bad - logits.begin())};
  }
  if (found.largest == -std::numeric_limits<float>::infinity()) {
    return Error{"no token is allowed here: every logit is -infinity"};
  }
  return found.largest;
}

// The same of what a GPU found.
Status check_best(const BestLogits& best) {
  if (std::isnan(best.log_sum)) {
    return Error{
        "the model gave NaN (not a number) or infinity as a logit; --check-finite names the "
        "module, and `ktx-run inspect PLAN --verify` checks the weights"};
  }
  if (best.best.empty()) return Error{"no token is allowed here: every logit is -infinity"};
  return {};
}

Status check(const char* name, float value, float low, float high) {
  if (value >= low && value <= high) return {};
  return Error{fmt::format("{} is {}, expected a number from {} to {}", name, value, low, high)};
}

constexpr float kHuge = 1e6f;

}  // namespace

SamplingOptions greedy_sampling() {
  SamplingOptions options;
  options.temperature = 0;
  return options;
}

Result<Sampler> Sampler::create(SamplingOptions options, int64_t vocab_size) {
  KTX_TRY(check("temperature", options.temperature, 0, kHuge));
  KTX_TRY(check("top-p", options.top_p, 0, 1));
  KTX_TRY(check("min-p", options.min_p, 0, 1));
  KTX_TRY(check("repetition penalty", options.repetition_penalty, 1e-6f, kHuge));
  KTX_TRY(check("presence penalty", options.presence_penalty, -kHuge, kHuge));
  KTX_TRY(check("frequency penalty", options.frequency_penalty, -kHuge, kHuge));
  if (options.top_k < 0)
    return Error{fmt::format("top-k is {}, expected 0 (off) or more", options.top_k)};
  if (options.penalty_window < -1) {
    return Error{fmt::format("penalty window is {}, expected -1 (all tokens) or more",
                             options.penalty_window)};
  }
  KTX_TRY(check("top-n-sigma", options.top_n_sigma, 0, kHuge));
  KTX_TRY(check("typical-p", options.typical_p, 0, 1));
  KTX_TRY(check("XTC probability", options.xtc_probability, 0, 1));
  KTX_TRY(check("XTC threshold", options.xtc_threshold, 0, 1));
  KTX_TRY(check("range of the dynamic temperature", options.dynamic_range, 0, kHuge));
  KTX_TRY(check("exponent of the dynamic temperature", options.dynamic_exponent, 0, kHuge));
  KTX_TRY(check("mirostat tau", options.mirostat_tau, 0, kHuge));
  KTX_TRY(check("mirostat eta", options.mirostat_eta, 0, 1));
  KTX_TRY(check("DRY multiplier", options.dry.multiplier, 0, kHuge));
  KTX_TRY(check("DRY base", options.dry.base, 1, kHuge));
  if (options.dry.allowed_length < 1) {
    return Error{
        fmt::format("DRY allowed length is {}, expected 1 or more", options.dry.allowed_length)};
  }
  for (const auto& [id, bias] : options.logit_bias) {
    if (id < 0 || id >= vocab_size) {
      return Error{
          fmt::format("logit bias names token {}, but the vocabulary has {}", id, vocab_size)};
    }
    if (bias == -std::numeric_limits<float>::infinity()) continue;
    KTX_TRY(check("logit bias", bias, -kHuge, kHuge));
  }
  return Sampler(std::move(options), vocab_size);
}

Sampler::Sampler(SamplingOptions options, int64_t vocab_size)
    : options_(std::move(options)),
      random_(options_.seed),
      seen_(vocab_size, 0),
      mirostat_bound_(2.0 * options_.mirostat_tau) {}

void Sampler::set_state(const SamplerState& state) {
  random_.set_state(state.random);
  const bool sound = std::isfinite(state.mirostat_bound) && state.mirostat_bound != 0;
  mirostat_bound_ = sound ? state.mirostat_bound : 2.0 * options_.mirostat_tau;
}

bool Sampler::penalties() const {
  return options_.repetition_penalty != 1 || options_.presence_penalty != 0 ||
         options_.frequency_penalty != 0;
}

bool Sampler::changes_logits() const {
  return penalties() || options_.dry.multiplier != 0 || !options_.logit_bias.empty();
}

void Sampler::apply_penalties(std::span<const int32_t> history) {
  if (!penalties()) return;
  const float repetition = options_.repetition_penalty;
  if (options_.penalty_window >= 0) {
    history = history.last(std::min<size_t>(history.size(), options_.penalty_window));
  }
  const auto known = [&](int32_t id) {
    return id >= 0 && static_cast<size_t>(id) < std::min(seen_.size(), logits_.size());
  };
  for (int32_t id : history) {
    if (known(id)) ++seen_[id];
  }
  for (int32_t id : history) {
    if (!known(id) || seen_[id] == 0) continue;
    float& logit = logits_[id];
    logit = logit > 0 ? logit / repetition : logit * repetition;
    logit -= options_.presence_penalty + static_cast<float>(seen_[id]) * options_.frequency_penalty;
    seen_[id] = 0;
  }
}

// The allowed tokens, or the top_k best of them: one pass with a heap of k, because
// a vocabulary has 150,000 entries and sorting them would take longer than a layer.
void Sampler::collect() {
  candidates_.clear();
  // Mirostat has a bound of its own.
  const size_t top_k = options_.mirostat ? 0 : options_.top_k;
  const size_t limit = top_k > 0 && top_k < logits_.size() ? top_k : logits_.size() + 1;
  const float forbidden = -std::numeric_limits<float>::infinity();
  for (size_t id = 0; id < logits_.size(); ++id) {
    // Most runs of tokens hold none that is good enough.
    constexpr size_t kRun = 8 * kLanes;
    while (id % kRun == 0 && id + kRun <= logits_.size() && candidates_.size() == limit &&
           scan({&logits_[id], kRun}).largest <= candidates_.front().logit) {
      id += kRun;
    }
    if (id == logits_.size()) break;
    const Candidate candidate{static_cast<int32_t>(id), logits_[id]};
    if (candidate.logit == forbidden) continue;
    if (candidates_.size() < limit) {
      candidates_.push_back(candidate);
      if (candidates_.size() == limit)
        std::make_heap(candidates_.begin(), candidates_.end(), better);
    } else if (candidate.logit > candidates_.front().logit) {
      std::pop_heap(candidates_.begin(), candidates_.end(), better);
      candidates_.back() = candidate;
      std::push_heap(candidates_.begin(), candidates_.end(), better);
    }
  }
  // In order of number or of rank, so that a draw does not depend on the heap.
  if (limit < logits_.size()) put_best_first(candidates_, candidates_.size());
}

int32_t Sampler::draw() {
  float temperature = options_.temperature;
  if (options_.mirostat) {
    keep_unsurprising(candidates_, temperature, mirostat_bound_);
  } else {
    if (options_.typical_p < 1) keep_typical(candidates_, options_.typical_p);
    if (options_.top_p < 1) keep_top_p(candidates_, options_.top_p);
    if (options_.min_p > 0) keep_min_p(candidates_, options_.min_p);
    if (options_.xtc_probability > 0 && random_.uniform() < options_.xtc_probability) {
      exclude_top_choices(candidates_, options_.xtc_threshold);
    }
    if (options_.dynamic_range > 0) {
      temperature = dynamic_temperature(candidates_, temperature, options_.dynamic_range,
                                        options_.dynamic_exponent);
    }
  }
  const double total = weigh(candidates_, temperature, weights_);
  double left = random_.uniform() * total;
  size_t chosen = 0;
  while (chosen + 1 < weights_.size() && left >= weights_[chosen]) left -= weights_[chosen++];
  if (options_.mirostat) {
    const double surprise = -std::log2(weights_[chosen] / total);
    mirostat_bound_ -= options_.mirostat_eta * (surprise - options_.mirostat_tau);
  }
  return candidates_[chosen].id;
}

// Nothing was drawn: this one had all of the probability.
void Sampler::decide(int32_t id) {
  candidates_.assign(1, {id, 0});
  weights_.assign(1, 1);
}

Logprobs Sampler::drawn_from(int32_t chosen, int count) const {
  double total = 0;
  for (const double weight : weights_) total += weight;
  Logprobs result;
  result.logprob = -std::numeric_limits<double>::infinity();
  for (size_t i = 0; i < weights_.size(); ++i) {
    const double logprob = std::log(weights_[i] / total);
    if (candidates_[i].id == chosen) result.logprob = logprob;
    if (weights_[i] > 0) result.top.push_back({candidates_[i].id, logprob});
  }
  std::stable_sort(result.top.begin(), result.top.end(),
                   [](const auto& a, const auto& b) { return a.logprob > b.logprob; });
  result.top.resize(std::min<size_t>(result.top.size(), std::max(count, 0)));
  return result;
}

Result<int32_t> Sampler::sample(std::span<const float> logits, std::span<const int32_t> history,
                                const std::optional<TokenBits>& allowed) {
  if (options_.temperature == 0 && !changes_logits()) {
    const int32_t id = KTX_TRY(allowed ? best_token(logits, *allowed) : best_token(logits));
    decide(id);
    return id;
  }
  logits_.assign(logits.begin(), logits.end());
  for (const auto& [id, bias] : options_.logit_bias) {
    if (static_cast<size_t>(id) < logits_.size()) logits_[id] += bias;
  }
  if (allowed) {
    KTX_TRY(checked_max(logits_));  // what is not allowed may be wrong, too
    forbid_others(*allowed, logits_);
  }
  apply_penalties(history);
  apply_dry_penalty(options_.dry, history, logits_);
  if (options_.temperature == 0) {
    const int32_t id = KTX_TRY(best_token(logits_));
    decide(id);
    return id;
  }
  KTX_TRY(checked_max(logits_));
  if (options_.top_n_sigma > 0 && !options_.mirostat) {
    const float bound = sigma_bound(logits_, options_.top_n_sigma);
    for (float& logit : logits_) {
      if (logit < bound) logit = -std::numeric_limits<float>::infinity();
    }
  }
  collect();
  return draw();
}

int32_t Sampler::best_needed() const {
  if (changes_logits()) return -1;
  if (options_.temperature == 0) return 1;
  if (options_.mirostat || options_.top_n_sigma > 0) return -1;
  const bool few = options_.top_k > 0 && options_.top_k <= kMostBestLogits &&
                   static_cast<size_t>(options_.top_k) < seen_.size();
  return few ? options_.top_k : -1;
}

Result<int32_t> Sampler::sample(const BestLogits& best) {
  const int32_t likeliest = KTX_TRY(best_token(best));
  if (options_.temperature == 0) {
    decide(likeliest);
    return likeliest;
  }
  candidates_.clear();
  for (const TokenLogit& token : best.best) {
    if (candidates_.size() == static_cast<size_t>(options_.top_k)) break;
    candidates_.push_back({token.id, token.logit});
  }
  return draw();
}

// The largest is looked up in the run of tokens that it was found in: one pass instead of two.
constexpr size_t kRun = 128 * kLanes;

Result<int32_t> best_token(std::span<const float> logits) {
  float best = -std::numeric_limits<float>::infinity();
  size_t best_run = 0;
  for (size_t run = 0; run < logits.size(); run += kRun) {
    const Scan found = scan(logits.subspan(run, std::min(kRun, logits.size() - run)));
    if (found.sound && found.largest <= best) continue;
    if (!found.sound) return checked_max(logits).error();
    best = found.largest;
    best_run = run;
  }
  if (best == -std::numeric_limits<float>::infinity()) return checked_max(logits).error();
  const auto from = logits.begin() + static_cast<ptrdiff_t>(best_run);
  return static_cast<int32_t>(std::find(from, logits.end(), best) - logits.begin());
}

// Only runs that may hold a better one are masked.
Result<int32_t> best_token(std::span<const float> logits, TokenBits allowed) {
  float best = -std::numeric_limits<float>::infinity();
  int32_t id = -1;
  std::array<float, kRun> held;
  for (size_t begin = 0; begin < logits.size(); begin += kRun) {
    const auto run = logits.subspan(begin, std::min(kRun, logits.size() - begin));
    const Scan found = scan(run);
    if (!found.sound) return checked_max(logits).error();
    if (found.largest <= best || begin / 32 >= allowed.size()) continue;
    const TokenBits bits = allowed.subspan(begin / 32);
    const std::span<float> masked(held.data(), run.size());
    std::copy(run.begin(), run.end(), masked.begin());
    forbid_others(bits, masked);
    const float largest = scan(masked).largest;
    if (largest <= best) continue;
    best = largest;
    id = static_cast<int32_t>(begin) +
         static_cast<int32_t>(std::find(masked.begin(), masked.end(), best) - masked.begin());
  }
  if (id < 0) return Error{"no token is allowed here: every logit is -infinity"};
  return id;
}

Result<int32_t> best_token(const BestLogits& best) {
  KTX_TRY(check_best(best));
  return best.best[0].id;
}

Result<Logprobs> logprobs(std::span<const float> logits, int32_t chosen, int count) {
  const LogSoftmax softmax = KTX_TRY(log_softmax(logits));
  KTX_ASSERT(chosen >= 0 && static_cast<size_t>(chosen) < logits.size());
  Logprobs result;
  result.logprob = softmax.logprob(logits[chosen]);
  const size_t kept = std::min<size_t>(std::max(count, 0), logits.size());
  if (kept == 0) return result;
  std::vector<int32_t> ids(logits.size());
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int32_t>(i);
  std::partial_sort(ids.begin(), ids.begin() + kept, ids.end(), [&](int32_t a, int32_t b) {
    return logits[a] > logits[b] || (logits[a] == logits[b] && a < b);
  });
  for (size_t i = 0; i < kept; ++i) result.top.push_back({ids[i], softmax.logprob(logits[ids[i]])});
  return result;
}

Result<Logprobs> logprobs(const BestLogits& best, int32_t chosen, int count) {
  KTX_TRY(check_best(best));
  const auto found = std::find_if(best.best.begin(), best.best.end(),
                                  [&](const TokenLogit& token) { return token.id == chosen; });
  KTX_ASSERT(found != best.best.end());
  Logprobs result;
  result.logprob = found->logit - best.log_sum;
  for (const TokenLogit& token : best.best) {
    if (static_cast<int>(result.top.size()) >= count) break;
    result.top.push_back({token.id, token.logit - best.log_sum});
  }
  return result;
}

}  // namespace ktx::runtime

// The formulas are those of the papers and of the models' published code:
//
//   plain   f_i = theta^(-2i / dim)
//   linear  f_i / factor
//   llama3  low frequencies / factor, high ones unchanged, a blend in between
//   proportional   f_i / factor, 0 for the pairs that do not turn
//   yarn    the same with a ramp over i; cos and sin are scaled by an attention factor
//   longrope  f_i / divisor_i, of one list in contexts up to the first one, of another above
#include "lib/arch/rope_frequencies.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace ktx::arch {
namespace {

constexpr double kTwoPi = 2 * std::numbers::pi;

std::vector<double> plain(double theta, int32_t dim) {
  std::vector<double> out(dim / 2);
  for (size_t i = 0; i < out.size(); ++i) {
    out[i] = std::pow(theta, -2.0 * static_cast<double>(i) / dim);
  }
  return out;
}

void scale_llama3(const RopeParams& rope, std::vector<double>& freq) {
  const double low = *rope.low_freq_factor;
  const double high = *rope.high_freq_factor;
  for (double& f : freq) {
    const double turns = rope.original_context * f / kTwoPi;  // within the trained context
    if (turns > high) continue;
    if (turns < low || low == high) {
      f /= rope.factor;
    } else {
      const double smooth = (turns - low) / (high - low);
      f = (1 - smooth) * f / rope.factor + smooth * f;
    }
  }
}

void scale_yarn(const RopeParams& rope, int32_t dim, std::vector<double>& freq) {
  // The index at which a frequency turns `turns` times within the trained context.
  const auto index_of = [&](double turns) {
    return dim * std::log(rope.original_context / (turns * kTwoPi)) / (2 * std::log(rope.theta));
  };
  double low = index_of(rope.beta_fast);
  double high = index_of(rope.beta_slow);
  if (rope.truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, dim - 1.0);
  if (low == high) high += 0.001;
  for (size_t i = 0; i < freq.size(); ++i) {
    const double ramp = std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0);
    freq[i] = freq[i] / rope.factor * ramp + freq[i] * (1 - ramp);
  }
}

double yarn_mscale(double factor, double mscale) {
  return factor <= 1 ? 1.0 : 0.1 * mscale * std::log(factor) + 1.0;
}

// What cos and sin grow by. With both mscales their ratio, else that of mscale 1.
double yarn_attention_factor(const RopeParams& rope) {
  if (rope.attention_factor) return *rope.attention_factor;
  if (rope.mscale.value_or(0) != 0 && rope.mscale_all_dim.value_or(0) != 0) {
    return yarn_mscale(rope.factor, *rope.mscale) / yarn_mscale(rope.factor, *rope.mscale_all_dim);
  }
  return yarn_mscale(rope.factor, 1);
}

double longrope_attention_factor(const RopeParams& rope) {
  if (rope.attention_factor) return *rope.attention_factor;
  if (rope.factor <= 1) return 1;
  return std::sqrt(1 + std::log(rope.factor) / std::log(rope.original_context));
}

std::vector<float> rounded(const std::vector<double>& values) {
  return std::vector<float>(values.begin(), values.end());
}

}  // namespace

RopeTable rope_table(const RopeParams& rope, int32_t rotary_dim, bool is_mla, int64_t ctx) {
  RopeTable table;
  std::vector<double> freq = plain(rope.theta, rotary_dim);
  switch (rope.type) {
    case RopeType::Plain:
    case RopeType::Dynamic:
      break;
    case RopeType::Linear:
      for (double& f : freq) f /= rope.factor;
      break;
    case RopeType::Llama3:
      if (rope.low_freq_factor) scale_llama3(rope, freq);
      break;
    case RopeType::Proportional: {
      const auto turning = static_cast<size_t>(rope.rotated * rotary_dim / 2);
      for (size_t i = 0; i < freq.size(); ++i) freq[i] = i < turning ? freq[i] / rope.factor : 0;
      break;
    }
    case RopeType::LongRope: {
      const bool is_long = static_cast<double>(ctx) > rope.original_context;
      const std::vector<double>& divisors = is_long ? rope.long_factors : rope.short_factors;
      if (!is_long) table.context = static_cast<int64_t>(rope.original_context);
      for (size_t i = 0; i < divisors.size(); ++i) freq[i] /= divisors[i];
      const std::optional<double>& own = is_long ? rope.long_mscale : rope.short_mscale;
      table.mscale = own.value_or(longrope_attention_factor(rope));
      break;
    }
    case RopeType::Yarn:
      scale_yarn(rope, rotary_dim, freq);
      table.mscale = yarn_attention_factor(rope);
      if (is_mla && rope.mscale_all_dim.value_or(0) != 0) {
        const double mscale = yarn_mscale(rope.factor, *rope.mscale_all_dim);
        table.softmax_mscale = mscale * mscale;
      }
      break;
  }
  table.inv_freq = rounded(freq);
  return table;
}

std::vector<float> rope_from_factors(const RopeParams& rope, std::span<const float> factors) {
  std::vector<double> freq = plain(rope.theta, static_cast<int32_t>(factors.size()) * 2);
  for (size_t i = 0; i < freq.size(); ++i) freq[i] /= factors[i];
  return rounded(freq);
}

std::vector<float> over_grid(std::span<const float> inv_freq, bool alike) {
  std::vector<float> out;
  out.reserve(inv_freq.size());
  for (const size_t first : {0, alike ? 0 : 1}) {
    for (size_t i = first; i < inv_freq.size(); i += 2) out.push_back(inv_freq[i]);
  }
  return out;
}

}  // namespace ktx::arch

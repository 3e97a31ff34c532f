// What the frequencies of rotary positions are divided by.
#include "tools/dev/synth/model_tensors.h"

#include <algorithm>
#include <cmath>

namespace ktx::synth {
namespace {

constexpr double kPi = 3.14159265358979323846;

}  // namespace

// What llama3 scaling divides each frequency by: 1 for short waves, `factor` for
// long ones, a blend between.
void add_rope_freqs(const ModelShape& s, TensorMaker& t) {
  const double theta = s.config.f64("rope_theta").value_or(10000);
  const double factor = s.config.f64("rope_scaling.factor").value_or(8);
  const double low = s.config.f64("rope_scaling.low_freq_factor").value_or(1);
  const double high = s.config.f64("rope_scaling.high_freq_factor").value_or(4);
  const auto length = static_cast<double>(
      s.config.i64("rope_scaling.original_max_position_embeddings").value_or(8192));
  // Where layers with a window rotate more of a head, nothing of theirs is divided.
  const int64_t pairs =
      std::max(s.rotary, s.family->has_role(ir::Role::LocalRotary) ? s.local_rotary() : 0) / 2;
  t.values("rope_freqs.weight", {pairs}, [=, dim = s.rotary](uint64_t i) {
    if (static_cast<int64_t>(i) >= dim / 2) return 1.f;
    const double wave =
        2 * kPi * std::pow(theta, 2.0 * static_cast<double>(i) / static_cast<double>(dim));
    if (wave < length / high) return 1.f;
    if (wave > length / low) return static_cast<float>(factor);
    const double smooth = (length / wave - low) / (high - low);
    return static_cast<float>(1 / ((1 - smooth) / factor + smooth));
  });
}

// 1 for the pairs that turn, the first ones; the others' frequencies become nothing.
void add_proportions(const ModelShape& s, TensorMaker& t) {
  const double part = s.config.f64("partial_rotary_factor").value_or(0.25);
  const auto turning = static_cast<uint64_t>(part * static_cast<double>(s.global_head_dim) / 2);
  t.values("rope_freqs.weight", {s.global_head_dim / 2},
           [turning](uint64_t i) { return i < turning ? 1.f : 1e30f; });
}

void add_longrope(const ModelShape& s, TensorMaker& t, const std::string& which) {
  const auto divisors = s.config.floats("rope_scaling." + which + "_factor");
  if (!divisors) return;
  t.values("rope_factors_" + which + ".weight", {static_cast<int64_t>(divisors->size())},
           [=](uint64_t i) { return static_cast<float>((*divisors)[i]); });
}

}  // namespace ktx::synth

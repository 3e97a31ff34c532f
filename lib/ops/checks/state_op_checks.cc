// Ops with a state of a sequence.
#include "lib/ops/checks/op_checks.h"

#include "lib/formats/shape_limits.h"

namespace ktx::op_checks {
namespace {

// Each state belongs to one step.
void check_state(OpCheck& s, int32_t state, int64_t floats) {
  constexpr int64_t kMaxStates = 1 << 16, kMaxStateFloats = int64_t{1} << 32;
  if (!s.in_range("state", state, 0, kMaxStates - 1)) return;
  s.require(floats <= kMaxStateFloats, "a state of {} floats, expected at most {}", floats,
            kMaxStateFloats);
  std::vector<bool>& used = s.flow.state_used;
  if (static_cast<int64_t>(used.size()) <= state) used.resize(static_cast<size_t>(state) + 1);
  s.require(!used[state], "state {} is used twice", state);
  used[state] = true;
}

}  // namespace

void check_causal_conv(OpCheck& s) {
  const auto& a = s.attrs<CausalConvAttrs>();
  if (!s.in_range("channels", a.channels, 1, kMaxDim) || !s.in_range("taps", a.taps, 2, 64)) return;
  s.shape("x", s.in(0), ValueType::F32, a.channels);
  s.shape("y", s.out(0), ValueType::F32, a.channels);
  s.matrices("w", s.weight(0), 1, a.channels, a.taps);
  if (s.weight(1).present()) s.vector("bias", s.weight(1), a.channels);
  s.in_range("plain", a.plain, 0, 1);
  if (!s.in_range("dilation", a.dilation, 1, 64)) return;
  check_state(s, a.state, a.state_floats());
}

// That rows stay inside of the table is the runtime's to see to, which reads the hash.
void check_embed_ngrams(OpCheck& s) {
  const auto& a = s.attrs<EmbedNgramsAttrs>();
  const OpWeight& table = s.weight(0);
  if (!s.in_range("size", a.size, 2, kMaxNgramSize) ||
      !s.in_range("heads", a.heads, 1, kMaxNgramRows) ||
      !s.in_range("rows", a.rows(), 1, kMaxNgramRows)) {
    return;
  }
  s.in_range("end", a.end, 0, s.flow.vocab_size > 0 ? s.flow.vocab_size - 1 : INT32_MAX);
  s.require(table.dtype != DType::I32, "table has integer elements");
  s.require(table.matrices == 1 && table.rows <= INT32_MAX, "table is {} matrices of {} rows",
            table.matrices, table.rows);
  s.shape("y", s.out(0), ValueType::F32, a.rows() * table.cols);
  s.vector("hash", s.weight(1), kNgramDigits * (a.size + 2 * a.rows()));
  s.require(s.weight(1).dtype == DType::F32, "hash is not F32");
  check_state(s, a.state, a.state_floats());
}

void check_delta_rule(OpCheck& s) {
  const auto& a = s.attrs<DeltaRuleAttrs>();
  if (!s.in_range("key_heads", a.key_heads, 1, kMaxHeads) ||
      !s.in_range("value_heads", a.value_heads, 1, kMaxHeads) ||
      !s.in_range("head_dim", a.head_dim, 1, kMaxDeltaHead)) {
    return;
  }
  s.in_range("tiled", a.tiled, 0, 1);
  if (!s.in_range("by_channel", a.by_channel, 0, 1)) return;
  s.require(a.lower_bound == 0 || (a.lower_bound < 0 && a.by_channel != 0), "lower_bound is {}",
            a.lower_bound);
  s.require(a.value_heads % a.key_heads == 0, "{} value heads share {} key heads", a.value_heads,
            a.key_heads);
  const int64_t heads = int64_t{a.key_heads} * 2 + a.value_heads;
  s.shape("x", s.in(0), ValueType::F32, heads * a.head_dim);
  const bool apart = s.in(2).present();
  s.shape("b", s.in(1), ValueType::F32, int64_t{a.value_heads} * (apart ? 1 : 2));
  s.require(apart || a.by_channel == 0, "a is missing");
  if (apart) s.shape("a", s.in(2), ValueType::F32, a.decays());
  s.vector("decay", s.weight(0), a.value_heads);
  s.vector("dt_bias", s.weight(1), a.decays());
  s.shape("y", s.out(0), ValueType::F32, int64_t{a.value_heads} * a.head_dim);
  check_state(s, a.state, a.state_floats());
}

void check_state_space(OpCheck& s) {
  const auto& a = s.attrs<StateSpaceAttrs>();
  if (!s.in_range("heads", a.heads, 1, kMaxHeads) ||
      !s.in_range("head_dim", a.head_dim, 1, kMaxDeltaHead) ||
      !s.in_range("groups", a.groups, 1, kMaxHeads) ||
      !s.in_range("state_dim", a.state_dim, 1, kMaxDeltaHead)) {
    return;
  }
  s.require(a.heads % a.groups == 0, "{} heads share {} groups", a.heads, a.groups);
  s.require(a.step_min >= 0 && a.step_max >= 0 && (a.step_max == 0 || a.step_max >= a.step_min),
            "steps are limited to {} and {}", a.step_min, a.step_max);
  s.shape("x", s.in(0), ValueType::F32, a.channels());
  s.shape("dt", s.in(1), ValueType::F32, a.heads);
  s.vector("decay", s.weight(0), a.heads);
  s.vector("skip", s.weight(1), a.heads);
  s.vector("dt_bias", s.weight(2), a.heads);
  s.shape("y", s.out(0), ValueType::F32, a.width());
  check_state(s, a.state, a.state_floats());
}

void check_selective_scan(OpCheck& s) {
  const auto& a = s.attrs<SelectiveScanAttrs>();
  if (!s.in_range("channels", a.channels, 1, kMaxDim) ||
      !s.in_range("state_dim", a.state_dim, 1, kMaxDeltaHead)) {
    return;
  }
  s.shape("x", s.in(0), ValueType::F32, a.channels);
  s.shape("dt", s.in(1), ValueType::F32, a.channels);
  s.shape("in_out", s.in(2), ValueType::F32, int64_t{2} * a.state_dim);
  s.matrices("decay", s.weight(0), 1, a.channels, a.state_dim);
  s.vector("skip", s.weight(1), a.channels);
  s.shape("y", s.out(0), ValueType::F32, a.channels);
  check_state(s, a.state, a.state_floats());
}

}  // namespace ktx::op_checks

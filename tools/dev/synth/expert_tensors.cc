// Routers and experts.
#include "tools/dev/synth/model_tensors.h"

#include <fmt/format.h>

#include <cmath>

namespace ktx::synth {
namespace {

// Experts of each token id, all different.
void add_expert_table(const ModelShape& s, TensorMaker& t, const std::string& name) {
  const uint64_t seed = t.next_seed();
  t.writer.add_tensor(
      name, DType::I32, {s.used, s.vocab},
      [seed, used = static_cast<uint64_t>(s.used), experts = static_cast<uint64_t>(s.experts)](
          uint64_t offset, std::span<std::byte> out) {
        for (size_t at = 0; at < out.size(); at += 4) {
          const uint64_t i = (offset + at) / 4;
          const uint64_t first = mix_bits(seed ^ mix_bits(i / used)) % experts;
          const auto expert = static_cast<int32_t>((first + i % used) % experts);
          std::memcpy(&out[at], &expert, 4);
        }
      });
}

}  // namespace

void add_experts(const ModelShape& s, TensorMaker& t, int64_t layer, const std::string& blk) {
  t.router(blk + "ffn_gate_inp.weight");
  if (s.family->has_role(ir::Role::RouterNorm)) {
    // The router's input is divided by the root of its width.
    const float root = std::sqrt(static_cast<float>(s.hidden));
    t.noise(blk + "ffn_gate_inp.scale", s.hidden, 0.02f * root, root);
    t.norm(ir::Role::ExpertsNorm, layer, s.hidden);
    t.norm(ir::Role::DensePostNorm, layer, s.hidden);
    t.norm(ir::Role::ExpertsPostNorm, layer, s.hidden);
    t.noise(blk + "ffn_down_exps.scale", s.experts, 0.02f, 1);
  }
  const auto add = [&](const char* part, int64_t rows_of, int64_t rows, float sigma) {
    if (!s.options.split_experts) {
      return t.matrix(fmt::format("{}{}_exps.weight", blk, part), layer, {rows_of, rows, s.experts},
                      sigma);
    }
    for (int64_t e = 0; e < s.experts; ++e) {
      t.matrix(fmt::format("{}{}.{}.weight", blk, part, e), layer, {rows_of, rows}, sigma);
    }
  };
  const auto own_latent = s.config.i64("moe_latent_size");
  const int64_t latent = own_latent.value_or(s.hidden);
  if (!s.family->gateless) add("ffn_gate", latent, s.expert_ffn, kSigma);
  add("ffn_up", latent, s.expert_ffn, kSigma);
  add("ffn_down", s.expert_ffn, latent, kResidualSigma);
  if (own_latent) {
    const bool routed = s.family->has_role(ir::Role::LatentNorm);
    const std::string name = blk + (routed ? "ffn_routed_" : "ffn_latent_");
    t.matrix(name + "down.weight", layer, {s.hidden, latent});
    t.matrix(name + "up.weight", layer, {latent, s.hidden}, kResidualSigma);
    if (s.flag("latent_moe_use_norm").value_or(false)) t.norm(ir::Role::LatentNorm, layer, latent);
  }
  if (s.is_compressed() && s.has_expert_table(layer)) {
    add_expert_table(s, t, blk + "ffn_gate_tid2eid.weight");
  } else if (s.is_compressed() || s.has_correction_bias()) {
    t.noise(blk + "exp_probs_b.bias", s.experts, 0.01f);
  }
  if (s.has_param(ir::Role::Router, "bias")) t.noise(blk + "ffn_gate_inp.bias", s.experts, kSigma);
  if (s.has_param(ir::Role::Experts, "gate_bias")) {
    t.noise(blk + "ffn_gate_exps.bias", {s.expert_ffn, s.experts}, kSigma);
    t.noise(blk + "ffn_up_exps.bias", {s.expert_ffn, s.experts}, kSigma);
    t.noise(blk + "ffn_down_exps.bias", {s.hidden, s.experts}, kSigma);
  }
  if (s.shared_ffn == 0) return;
  if (s.family->has_role(ir::Role::SharedGate))
    t.noise(blk + "ffn_gate_inp_shexp.weight", s.hidden, kSigma);
  if (!s.family->gateless) t.matrix(blk + "ffn_gate_shexp.weight", layer, {s.hidden, s.shared_ffn});
  t.matrix(blk + "ffn_up_shexp.weight", layer, {s.hidden, s.shared_ffn});
  t.matrix(blk + "ffn_down_shexp.weight", layer, {s.shared_ffn, s.hidden}, kResidualSigma);
}

}  // namespace ktx::synth

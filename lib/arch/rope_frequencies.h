// Frequencies and scales of rotary embedding. Every kind of scaling is resolved at compile time;
// kernels know none of them.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "lib/arch/hyper_params.h"

namespace ktx::arch {

struct RopeTable {
  std::vector<float> inv_freq;  // rotary_dim / 2
  double mscale = 1;            // multiplies cos and sin
  double softmax_mscale = 1;    // multiplies the softmax scale (latent attention)
  int64_t context = 0;          // that the frequencies are for; 0: any
};

// `is_mla`: DeepSeek's reading of yarn's mscale. Where longrope's factors are in tensors,
// frequencies are plain.
RopeTable rope_table(const RopeParams& rope, int32_t rotary_dim, bool is_mla, int64_t ctx);

// Plain frequencies divided by what a GGUF's rope_freqs.weight or rope_factors_*.weight holds.
std::vector<float> rope_from_factors(const RopeParams& rope, std::span<const float> factors);

// For patches: even pairs first, which turn by the line, then odd ones, which turn by the column;
// `alike`: even pairs for both.
std::vector<float> over_grid(std::span<const float> inv_freq, bool alike);

}  // namespace ktx::arch

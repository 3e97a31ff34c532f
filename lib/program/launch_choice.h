// Chooses the kernels of a GPU by steps and number of tokens: applies the rows of
// kernels/gpu/gpu_kernels.def to the steps and groups of a model.
//
//   launch kernel=gate_up_gemv fused=gate_up steps=9,10,11,12 tokens=1:1
//   launch kernel=marlin_gemv steps=10 tokens=1:1
//   launch kernel=cublas_gemm steps=10 tokens=1024:- sm=90:90 needs=cublas
//
// Choices are made for every generation of GPUs, so that a plan also runs on other cards than the
// one it was compiled for. Equal choices become one launch.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/gpu/gpu_kernels.h"
#include "lib/program/program.h"
#include "lib/support/result.h"

namespace ktx::program {

// What a user prefers to the choice of the tables; for comparisons, and for machines that the
// tables do not know.
struct Preferences {
  enum class Latent { Measured, Absorbed, Expanded };  // form of MLA for prompts on a GPU
  Latent latent = Latent::Measured;
  bool cublas = true;  // false: our kernels alone
  bool fused = true;   // false: every step by itself
  // Tokens of a pass from which on GPUs compute experts of the CPU (streams.h); 0: never.
  int64_t stream_tokens = 0;
  bool stream_chosen = false;  // by the user; else place-devices decides
  // Tokens of a pass that take the CPU as long as the copy of the experts (joint_experts.h); 0:
  // GPUs compute all of them.
  int64_t joint_tokens = 0;
  bool joint_chosen = false;
};

// "mla=absorbed,cublas=no"; an error names what there is.
Result<Preferences> parse_preferences(std::string_view text);

// Those that launches are of; launches of one group follow each other.
std::vector<FusedGroup> groups_of(std::span<const Launch> launches);

// For the parts and groups of the program. `machines`: of gpu_generations(), where the target says
// more of one, that instead; rising.
std::vector<Launch> choose_launches(const Program& program,
                                    std::span<const kernels::GpuMachine> machines,
                                    const Preferences& preferences);

}  // namespace ktx::program

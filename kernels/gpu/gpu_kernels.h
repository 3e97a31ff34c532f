// The kernels of GPUs as a table (gpu_kernels.def), and which of them a product or a fused op
// gets for how many rows. Host code without CUDA: the compiler chooses with it, tests and
// benchmarks of kernels do, too.
//
//   GpuForm form = {.op = StepOp::Matmul, .weights = {{DType::Q4_K, Layout::Marlin, 4096, 4096}}};
//   choose_gpu_kernels(form, gpu_machine(90))
//     // marlin_gemv 1 | cublas_gemm 2048.. (needs cublas) | marlin_gemm_wgmma 33.. (needs wgmma) |
//     // marlin_skinny_gemm 2..96 | marlin_gemm_mma 385.. | marlin_few_gemm 97..384
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lib/formats/dtype.h"
#include "lib/formats/layout.h"
#include "lib/ops/fused_ops.h"
#include "lib/ops/step_attrs.h"
#include "lib/ops/step_ops.h"

namespace ktx::kernels {

enum class GpuKernel : uint8_t {
#define KTX_GPU_KERNEL(id, ...) id,
#define KTX_GPU_FUSED_KERNEL(id, ...) id,
#include "kernels/gpu/gpu_kernels.def"
#undef KTX_GPU_FUSED_KERNEL
#undef KTX_GPU_KERNEL
};

// What a kernel needs besides its generation of GPUs; bits.
enum KernelNeed : uint32_t {
  kNeedsNothing = 0,
  kNeedsCublas = 1 << 0,     // the library is installed
  kNeedsWgmma = 1 << 1,      // the program is built for sm_90a
  kNeedsHalfCache = 1 << 2,  // keys and values in F16 or Q8_0
  kNeedsWgmmaHalfCache = kNeedsWgmma | kNeedsHalfCache,
};
inline constexpr uint32_t kAllKernelNeeds = kNeedsCublas | kNeedsWgmma | kNeedsHalfCache;
// "cublas", "wgmma,half_cache"; "" for none. The inverse: nothing for an unknown word.
std::string needs_text(uint32_t needs);
std::optional<uint32_t> needs_from_text(std::string_view text);

inline constexpr int kNewestSm = 0xFFFF;  // no end to the generations
inline constexpr int64_t kAnyRows = std::numeric_limits<uint32_t>::max();

// A generation of GPUs, as far as choices depend on it.
struct GpuMachine {
  int sm = 0;  // compute capability times ten
  int multiprocessors = 0;
  int64_t shared_memory = 0;  // of a block at most, bytes
};
// In rising order, with the SMs of the generation's largest card for servers or homes.
std::span<const GpuMachine> gpu_generations();
GpuMachine gpu_machine(int sm);  // the last generation that is not newer

struct GpuWeight {
  DType dtype = DType::F32;
  Layout layout = Layout::Rows;
  int64_t rows = 0, cols = 0;
  bool operator==(const GpuWeight&) const = default;
};

// Steps as far as the choice of a kernel depends on them.
struct GpuForm {
  StepOp op = StepOp::Matmul;      // of a single step
  std::optional<FusedOp> fused;    // or the steps of this one
  std::vector<GpuWeight> weights;  // of products, in order; experts: gate, up, down as there are
  // Experts.
  int32_t experts = 0, top_k = 1;
  bool transposed = false;  // MatmulHeads
  bool norm = false;        // a norm stands before the products
  bool bias = false;        // any of the products has one
  bool aligned = true;      // x, norm and rows begin at multiples of 16 bytes
  // Attention and Latent.
  AttentionAttrs attention;
  MatmulHeadsAttrs absorb, expand;
  RopeAttrs rope;
  bool alike = false;  // q and k are normed and rotated alike; DeltaNet: the norm is one of heads
  // DeltaNet.
  CausalConvAttrs conv;
  DeltaRuleAttrs delta;
};

struct RowRange {
  int64_t least = 1, most = kAnyRows;
  bool empty() const { return least > most; }
  bool has(int64_t rows) const { return least <= rows && rows <= most; }
  bool operator==(const RowRange&) const = default;
};

struct GpuKernelInfo {
  GpuKernel kernel;
  std::string_view name;
  int least_sm, most_sm;
  uint32_t needs;
  RowRange (*range)(const GpuForm&, const GpuMachine&);  // empty: not for this form
  std::string_view sentence;
  std::span<const StepOp> ops;
  std::optional<FusedOp> fused;
  bool serves(const GpuForm& form) const;
};
std::span<const GpuKernelInfo> all_gpu_kernels();
const GpuKernelInfo& info(GpuKernel kernel);
std::optional<GpuKernel> gpu_kernel_from_name(std::string_view name);

// Rows are those of a single step's values, tokens of the pass for a fused op.
struct GpuChoice {
  GpuKernel kernel;
  RowRange rows;
  uint32_t needs = 0;
  bool operator==(const GpuChoice&) const = default;
};
// In order of preference. Those without needs cover all rows of a single step once, or, of a
// fused op, each row at most once; what one of those with needs lacks goes to the ones behind it.
// Empty: no kernel takes the form.
std::vector<GpuChoice> choose_gpu_kernels(const GpuForm& form, const GpuMachine& machine);

// The first choice for so many rows whose needs are among `has`.
std::optional<GpuKernel> first_choice(std::span<const GpuChoice> choices, int64_t rows,
                                      uint32_t has);

// From how many tokens of a sequence on MLA in expanded form is faster, however long the past and
// with 16 heads or 128: one H200, `bench-kernels latent` (bench/2026-11-gpu-prompts.md). At 32 it
// is 1.1 times as fast with no past and 0.75 to 0.9 times behind 2048 positions.
inline constexpr int64_t kExpandedTokens = 64;

}  // namespace ktx::kernels

// The best logits of each row, so that a step's logits need not travel: 150,000 floats stay
// on the GPU, and one token, or the 40 that top_k leaves, come to the sampler.
//
//   best[r][i]  the tokens with the largest logits, falling; of equal ones the lower id
//               first, as the sampler has it (lib/runtime/sampling/sampler.h); with `allowed` of
//               those whose bit is set there
//   log_sum[r]  log sum exp of the whole row; NaN when it holds NaN or +infinity, -infinity when
//               it allows no token
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/common/cuda_stream.h"
#include "lib/support/result.h"

namespace ktx::kernels {

inline constexpr int32_t kCudaMostBest = 128;

struct CudaTokenLogit {
  float logit = 0;
  int32_t id = -1;  // -1: the row has no more tokens than those before (-infinity is none)
};

struct CudaBestLogitsArgs {
  const float* logits = nullptr;  // [rows, vocabulary]
  int64_t logits_stride = 0;
  int64_t rows = 0;
  int64_t vocabulary = 0;
  int32_t count = 1;                  // 1 to kCudaMostBest
  const uint32_t* allowed = nullptr;  // [rows, allowed_words]; null: all tokens
  int64_t allowed_words = 0;          // at least a bit for each token
  CudaTokenLogit* best = nullptr;     // [rows, count]
  double* log_sum = nullptr;          // [rows]
  std::byte* workspace = nullptr;
};
// Depends on rows, vocabulary and count.
int64_t cuda_best_logits_workspace(const CudaBestLogitsArgs& args);
Status launch_best_logits(const CudaBestLogitsArgs& args, CudaStream stream);

}  // namespace ktx::kernels

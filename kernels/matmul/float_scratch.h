// One thread's memory while many tokens meet float weights (matmul_float_loop.h): a
// stretch of 64 rows and of a tile of tokens, and the sums of 64 rows x 64 tokens, each
// with its 16 lanes. Made for a second cache of 512 KiB and more. Private to
// kernels/matmul.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ktx::kernels {

inline constexpr int64_t kFloatRows = 64;
inline constexpr int64_t kFloatTokens = 64;
inline constexpr int64_t kMostDirectTokens = 4;      // that meet rows where they are
inline constexpr int64_t kFloatStretchBytes = 2048;  // of a row; in elements a multiple of 256

struct FloatScratch {
  static constexpr int64_t kWeights = kFloatRows * kFloatStretchBytes;
  static constexpr int64_t kActivations = 8 * kFloatStretchBytes;
  static constexpr int64_t kSums = kFloatRows * kFloatTokens * 16 * 4;
  static constexpr int64_t kBytes = kWeights + kActivations + kSums;

  std::byte* weights;
  std::byte* activations;
  float* sums;  // register tile after register tile, 16 each

  explicit FloatScratch(std::byte* memory)
      : weights(memory),
        activations(memory + kWeights),
        sums(reinterpret_cast<float*>(memory + kWeights + kActivations)) {}
};

}  // namespace ktx::kernels

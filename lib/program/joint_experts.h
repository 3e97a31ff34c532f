// Joint passes: of streamed experts (streams.h), whose copy takes as long however many tokens a
// pass has, the CPU computes some while the others come to the GPU.
//
//   a pass of `joint` tokens takes the CPU as long as the copy takes; of T tokens T / joint times
//   as long. Both end together when the CPU has joint / (joint + T) of the experts, the last ones:
//
//   joint 192, 128 experts   T = 256: GPU 0..72    512: 0..92    1,344: 0..111    more: all
#pragma once

#include <cstdint>

namespace ktx::program {

inline constexpr int64_t kMostJoint = 7;  // times the tokens of `joint`

// Whether the CPU computes some in a pass of so many tokens: not where that would be less than an
// eighth, which handing its values over costs (GLM-4.5-Air, 2,048 tokens: a ninth was 24 % slower;
// the 30B, 1,024 tokens: a seventh 8 % faster; H100, 2026-11). joint <= 0: never.
constexpr bool is_joint(int64_t tokens, int64_t joint) {
  return joint > 0 && tokens <= kMostJoint * joint;
}

// How many of a part's experts, from the first on, the GPU computes in a pass of so many tokens.
constexpr int32_t experts_of_gpu(int32_t experts, int64_t tokens, int64_t joint) {
  if (!is_joint(tokens, joint)) return experts;
  const int64_t own = (int64_t{experts} * tokens + (joint + tokens) / 2) / (joint + tokens);
  return static_cast<int32_t>(own);
}

}  // namespace ktx::program

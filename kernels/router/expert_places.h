// Which pairs a group_experts step sorts, where it does not sort all of them.
//
// The experts of a layer may be split between devices, and each device has matrices of its own,
// numbered from 0.
//
//   places of 6 experts, where 1, 4 and 5 are here:   -1 0 -1 -1 1 2
//
// A plan stores places as a constant in F32 and does not check them when it is opened: whatever
// they are, place_of_expert() gives the number of a matrix or none.
#pragma once

#include <cstdint>

#include "kernels/cpu_and_gpu.h"
#include "lib/ops/step_attrs.h"

namespace ktx::kernels {

// The number of an expert's matrix, of `experts` that are here; -1: the expert is elsewhere.
KTX_CPU_AND_GPU constexpr int32_t place_of_expert(float place, int32_t experts) {
  return place >= 0 && place < static_cast<float>(experts) ? static_cast<int32_t>(place) : -1;
}

// Whether a step sorts choice `rank` of a token (GroupExpertsAttrs).
KTX_CPU_AND_GPU constexpr bool has_rank(const GroupExpertsAttrs& attrs, int32_t rank) {
  return attrs.ranks == 0 || (rank >= attrs.first_rank && rank - attrs.first_rank < attrs.ranks);
}

}  // namespace ktx::kernels

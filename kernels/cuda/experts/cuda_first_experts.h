// group_experts of the first experts alone, for passes whose other experts the CPU computes
// (lib/launches/joint_experts.h).
#pragma once

#include "kernels/cuda/experts/cuda_experts.h"

namespace ktx::kernels {

// As launch_group_experts; pairs of matrices from `end` on are of no expert here either.
Status launch_group_first_experts(const CudaGroupExpertsArgs& args, int32_t end, CudaStream stream);

}  // namespace ktx::kernels

// Describes steps to the choice of a GPU kernel (kernels/gpu/gpu_kernels.h).
#pragma once

#include "kernels/gpu/gpu_kernels.h"
#include "lib/program/program.h"

namespace ktx::program {

kernels::GpuForm gpu_form(const Program& program, const Step& step);
kernels::GpuForm gpu_form(const Program& program, const FusedGroup& group);
// For a step of a streamed part (streams.h): the weights of its products as tiles.
kernels::GpuForm streamed_form(const Program& program, const Step& step);

}  // namespace ktx::program

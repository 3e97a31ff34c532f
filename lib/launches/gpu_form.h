// Describes steps to the choice of a GPU kernel (kernels/gpu/gpu_kernels.h).
#pragma once

#include "kernels/gpu/gpu_kernels.h"
#include "lib/launches/launch.h"
#include "lib/launches/step_list.h"

namespace ktx::launches {

kernels::GpuForm gpu_form(const ListedStep& step);
kernels::GpuForm gpu_form(const StepList& list, const FusedGroup& group);

}  // namespace ktx::launches

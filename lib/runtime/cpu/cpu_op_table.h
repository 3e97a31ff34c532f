// Which function makes the steps of an op on the CPU (cpu_ops.def), as a value: tests give an
// engine another one, whose steps are wrong.
#pragma once

#include <memory>

#include "lib/ops/step_ops.h"
#include "lib/support/result.h"

namespace ktx::runtime {

class CpuStep;       // cpu_step.h
struct BindContext;  // likewise

using MakeStep = Result<std::unique_ptr<CpuStep>> (*)(const BindContext&);
using CpuOpTable = MakeStep (*)(StepOp op);  // null: the device has no such op

}  // namespace ktx::runtime

// One make function per op; cpu_step.h describes the steps that they return.
#pragma once

#include "lib/runtime/cpu/cpu_step.h"

namespace ktx::runtime {

#define KTX_CPU_OP(op, make) Result<std::unique_ptr<CpuStep>> make(const BindContext& context);
#include "lib/runtime/cpu/cpu_ops.def"
#undef KTX_CPU_OP
Result<std::unique_ptr<CpuStep>> make_rows(const BindContext& context);  // any row op

// Step has Status bind(const BindContext&).
template <class Step>
Result<std::unique_ptr<CpuStep>> make_step(const BindContext& context) {
  auto step = std::make_unique<Step>();
  KTX_TRY(step->bind(context));
  return std::unique_ptr<CpuStep>(std::move(step));
}

}  // namespace ktx::runtime

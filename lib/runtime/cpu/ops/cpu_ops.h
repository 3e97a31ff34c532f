// One make function per op, defined beside its step (cpu_step.h):
//
//   const MakeStep make_rope = make_step<RopeStep>;
#pragma once

#include "lib/runtime/cpu/cpu_step.h"

namespace ktx::runtime {

#define KTX_CPU_OP(op, make) extern const MakeStep make;
#include "lib/runtime/cpu/cpu_ops.def"
#undef KTX_CPU_OP
extern const MakeStep make_rows;  // any row op

// Step has Status bind(const BindContext&).
template <class Step>
Result<std::unique_ptr<CpuStep>> make_step(const BindContext& context) {
  auto step = std::make_unique<Step>();
  KTX_TRY(step->bind(context));
  return std::unique_ptr<CpuStep>(std::move(step));
}

}  // namespace ktx::runtime

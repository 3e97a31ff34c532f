// Whether the processor's dot products of BF16 (has_bf16_dots, isa.h) are worth taking.
//
// vdpbf16ps takes twice the products of an FMA. Zen 4 does one of 64 bytes a cycle, as FMAs.
// Intel's, measured on Emerald Rapids, take 2.1 cycles each, in which two ports do four FMAs: half
// the products (bench/2026-11-cpu-prompts.md). Kernels have the same bits with either.
#pragma once

namespace ktx {

bool has_fast_bf16_dots();

}  // namespace ktx

// Weights of the CPU's panels as tiles of a GPU, bit for bit: Layout::Panel16 or Panel16Stream to
// Layout::Marlin. Experts that a GPU streams from main memory are packed once, for the CPU, and
// are converted where they arrive (kernels/cuda/marlin/cuda_retile.h).
//
// A panel and a strip hold the same 16 rows, so each panel becomes one strip, and the panels of
// all matrices of a blob become its strips, in order.
#pragma once

#include <cstddef>
#include <cstdint>

#include "lib/formats/dtype.h"
#include "lib/formats/layout.h"
#include "lib/ops/step_ops.h"

namespace ktx::kernels {

bool retile_takes(DType dtype, Layout from);

// Converts one panel of whole blocks to one strip, marlin_strip_bytes() long; retile_takes() says
// which formats. This is the reference for the GPU's conversion.
void retile_panel(DType dtype, Layout from, int64_t cols, const std::byte* panel, std::byte* strip);

}  // namespace ktx::kernels

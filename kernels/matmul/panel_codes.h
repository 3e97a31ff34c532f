// From a panel (panel16.h) to codes and scales in registers, one struct a format.
//
//   PanelCodes<V, DType::Q4_K>::unit(words, rest, sink);
//
// calls for each 32 columns of the unit, in rising order,
//
//   sink(block, codes, s0, s1, m[, steps, step])
//
// codes[w]: columns 4 w .. 4 w + 3 of 16 rows, as bytes 0 .. kLargest, kOffset more than
// the code of int8_form.h; s0: the scale of each row (of the first 16 columns where
// kGroup is 16, then s1: of the others); m: its minimum where kMin is Float. Where it is
// Steps, minima are 6-bit numbers times a float: a block brings the two numbers of its
// kStepBlocks blocks, in the halves of `steps`, and an eighth of the float, `step`.
// Scales and minima are bit for bit those of int8_form.h. A unit is kUnit columns: kWords
// registers of words, and kRest bytes of the panel's end (16 rows together).
//
// V is PanelAvx2 or PanelAvx512. Private to kernels/matmul/*_<isa>.cc.
#pragma once

#include "kernels/matmul/panel_codes_blocks.h"
#include "kernels/matmul/panel_codes_books.h"
#include "kernels/matmul/panel_codes_k.h"
#include "kernels/matmul/panel_codes_low.h"
#include "kernels/matmul/panel_codes_stream.h"

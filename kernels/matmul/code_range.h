// The smallest and largest int8 code of each format (lib/formats/int8_form.h). How far
// sums of products may grow in 16 bits, and what to add to make codes unsigned, follow
// from it. tests/kernels/matmul_test.cc looks for codes outside.
//
// Private to kernels/matmul.
#pragma once

#include "lib/formats/dtype.h"

namespace ktx::kernels {

struct CodeRange {
  int low, high;
};

constexpr CodeRange code_range(DType dtype) {
  struct Row {
    DType dtype;
    CodeRange range;
  };
  constexpr Row kRows[] = {
      {DType::Q4_0, {-8, 7}},       {DType::Q4_1, {0, 15}},      {DType::Q5_0, {-16, 15}},
      {DType::Q5_1, {0, 31}},       {DType::Q8_0, {-128, 127}},  {DType::Q2_K, {0, 3}},
      {DType::Q3_K, {-4, 3}},       {DType::Q4_K, {0, 15}},      {DType::Q5_K, {0, 31}},
      {DType::Q6_K, {-32, 31}},     {DType::IQ2_XXS, {-43, 43}}, {DType::IQ2_XS, {-43, 43}},
      {DType::IQ2_S, {-43, 43}},    {DType::IQ3_XXS, {-62, 62}}, {DType::IQ3_S, {-15, 15}},
      {DType::IQ1_S, {-9, 9}},      {DType::IQ1_M, {-9, 9}},     {DType::IQ4_NL, {-127, 113}},
      {DType::IQ4_XS, {-127, 113}}, {DType::TQ1_0, {-1, 1}},     {DType::TQ2_0, {-1, 2}},
      {DType::MXFP4, {-12, 12}},    {DType::NVFP4, {-12, 12}},   {DType::Q1_0, {-1, 1}},
      {DType::Q2_0, {-1, 2}},
  };
  for (const Row& row : kRows) {
    if (row.dtype == dtype) return row.range;
  }
  return {-128, 127};
}

}  // namespace ktx::kernels

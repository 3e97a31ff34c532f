// The arithmetic of single elements and rows, one plain loop per formula; sums in double.
#pragma once

#include <cmath>
#include <span>
#include <vector>

#include "lib/ops/step_attrs.h"

namespace ktx::reference {

double dot(const float* a, const float* b, size_t n);
std::vector<float> glu(const GluAttrs& attrs, std::span<const float> gate,
                       std::span<const float> up);
// The activation of a unit without a gate.
float unit(const ActivateAttrs& attrs, double x);
// 0: as it is.
void clamp(float limit, std::span<float> x);
// What is below a quantile of the normal distribution that has the elements' mean and deviation.
void leave_out(double share, std::span<float> x);
float softcap(float x, float cap);
void add_to(std::span<float> y, std::span<const float> x, float factor = 1);
double mean_square(std::span<const float> x);
// As large as `like`.
void match_size(std::span<float> x, std::span<const float> like);

}  // namespace ktx::reference

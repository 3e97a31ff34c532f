// The experts of a token and their weights, from the logits of a router.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "lib/ops/step_attrs.h"

namespace ktx::reference {

std::vector<double> scores_of(const RouterAttrs& attrs, std::span<const float> logits);
// With the weights that the scores give them.
std::vector<std::pair<int32_t, float>> weighted(const RouterAttrs& attrs,
                                                std::span<const double> score,
                                                std::span<const int32_t> experts);
std::vector<std::pair<int32_t, float>> route(const RouterAttrs& attrs,
                                             std::span<const float> logits,
                                             std::span<const float> bias);

}  // namespace ktx::reference

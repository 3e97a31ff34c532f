// Which form MLA of a pass takes on a GPU that has both: from how many tokens of a sequence on the
// expanded one (kernels/cuda/cuda_latent.h). Fewer stay absorbed.
//
//   KTX_CUDA_MLA   unset: from `usual`   absorbed: never   expanded: from 2   else: an error
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "lib/support/result.h"

namespace ktx::runtime {

// `wish`: the value of KTX_CUDA_MLA. INT64_MAX: never.
Result<int64_t> expanded_from(const std::optional<std::string>& wish, int64_t usual);

}  // namespace ktx::runtime

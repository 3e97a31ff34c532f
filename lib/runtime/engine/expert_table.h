// Experts by token id (RouterAttrs), as a plan has them: untrusted, so that kernels need not look.
#pragma once

#include <cstdint>
#include <span>

#include "lib/ops/step_attrs.h"
#include "lib/support/result.h"

namespace ktx::runtime {

// Fails if a number of the table [vocabulary, attrs.top_k] is none of an expert.
Status check_expert_table(std::span<const int32_t> table, const RouterAttrs& attrs);

}  // namespace ktx::runtime

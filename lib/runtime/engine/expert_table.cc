#include "lib/runtime/engine/expert_table.h"

#include <fmt/format.h>

#include <algorithm>

namespace ktx::runtime {

Status check_expert_table(std::span<const int32_t> table, const RouterAttrs& attrs) {
  const auto wrong = std::ranges::find_if(
      table, [&](int32_t expert) { return expert < 0 || expert >= attrs.experts; });
  if (wrong == table.end()) return {};
  return Error{fmt::format("the table of experts has expert {} of {} for token {}", *wrong,
                           attrs.experts, (wrong - table.begin()) / attrs.top_k)};
}

}  // namespace ktx::runtime

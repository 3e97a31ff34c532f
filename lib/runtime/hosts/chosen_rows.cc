#include "lib/runtime/hosts/chosen_rows.h"

namespace ktx::runtime {

std::optional<std::vector<uint32_t>> chosen_rows(std::span<const int32_t> order,
                                                 std::span<const int32_t> offsets, int64_t tokens,
                                                 int64_t rows_per_token) {
  const int64_t pairs = std::ssize(order), rows = tokens * rows_per_token;
  if (offsets.empty() || offsets.back() < 0 || offsets.back() > pairs) return std::nullopt;
  if (rows <= 0 || pairs % rows != 0) return std::nullopt;
  const int64_t pairs_of_row = pairs / rows;
  std::vector<bool> taken(static_cast<size_t>(rows));
  std::vector<uint32_t> chosen;
  for (const int32_t pair : order.first(static_cast<size_t>(offsets.back()))) {
    if (pair < 0 || pair >= pairs) return std::nullopt;
    const auto row = static_cast<size_t>(pair / pairs_of_row);
    if (taken[row]) continue;
    taken[row] = true;
    chosen.push_back(static_cast<uint32_t>(row));
  }
  return chosen;
}

}  // namespace ktx::runtime

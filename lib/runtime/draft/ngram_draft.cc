#include "lib/runtime/draft/ngram_draft.h"

#include <algorithm>

namespace ktx::runtime {

std::vector<int32_t> ngram_draft(std::span<const int32_t> text, int64_t most) {
  for (const size_t n : {size_t{3}, size_t{2}}) {
    if (text.size() <= n || most <= 0) continue;
    const auto end = text.last(n);
    for (size_t at = text.size() - n; at-- > 0;) {
      if (!std::equal(end.begin(), end.end(), text.begin() + at)) continue;
      const size_t from = at + n;
      const size_t count = std::min<size_t>(static_cast<size_t>(most), text.size() - from);
      // An image of the text has ids below 0, which are no tokens that an answer may have.
      const auto drafted = text.subspan(from, count);
      return {drafted.begin(), std::ranges::find_if(drafted, [](int32_t id) { return id < 0; })};
    }
  }
  return {};
}

}  // namespace ktx::runtime

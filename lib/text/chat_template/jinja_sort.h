// A stable merge sort whose comparison may fail.
//
// std::stable_sort is undefined for an inconsistent order (NaN, templates'
// mixed values); this one always ends with some order.
#pragma once

#include <algorithm>
#include <utility>
#include <vector>

#include "lib/support/result.h"

namespace ktx::text::jinja {

// `less(a, b)` returns Result<bool>; the first error ends the sort.
template <class T, class Less>
Status stable_sort(std::vector<T>& items, Less less) {
  std::vector<T> from = items, to(items.size());
  for (size_t width = 1; width < items.size(); width *= 2) {
    for (size_t begin = 0; begin < items.size(); begin += 2 * width) {
      const size_t middle = std::min(begin + width, items.size());
      const size_t end = std::min(begin + 2 * width, items.size());
      size_t left = begin, right = middle;
      for (size_t out = begin; out < end; ++out) {
        bool take_right = left == middle;
        if (!take_right && right < end) take_right = KTX_TRY(less(from[right], from[left]));
        to[out] = std::move(take_right ? from[right++] : from[left++]);
      }
    }
    std::swap(from, to);
  }
  items = std::move(from);
  return {};
}

}  // namespace ktx::text::jinja

#include "lib/runtime/gpu/skinny_graphs.h"

#include <algorithm>

namespace ktx::runtime {

SkinnyGraphs::Graphs& SkinnyGraphs::meet(const Shape& shape, size_t parts) {
  auto found = std::ranges::find(all_, shape, &Graphs::shape);
  if (found == all_.end()) {
    found = std::ranges::min_element(all_, {}, &Graphs::last);
    *found = {};
    found->shape = shape;
    found->parts.resize(parts);
  }
  ++found->met;
  found->last = ++now_;
  return *found;
}

}  // namespace ktx::runtime

#include "lib/formats/layout.h"

namespace ktx {
namespace {

constexpr LayoutInfo kLayouts[] = {
#define KTX_LAYOUT(id, name, sentence) {Layout::id, name, sentence},
#include "lib/formats/layout.def"
#undef KTX_LAYOUT
};

}  // namespace

std::span<const LayoutInfo> all_layouts() {
  return kLayouts;
}

std::string_view name(Layout layout) {
  return kLayouts[static_cast<int>(layout)].name;
}

std::optional<Layout> layout_from_name(std::string_view name) {
  for (const LayoutInfo& row : kLayouts) {
    if (row.name == name) return row.layout;
  }
  return std::nullopt;
}

}  // namespace ktx

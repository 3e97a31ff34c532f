// The layouts of weight blobs as an enum and a table (layout.def).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace ktx {

enum class Layout : uint16_t {
#define KTX_LAYOUT(id, name, sentence) id,
#include "lib/formats/layout.def"
#undef KTX_LAYOUT
};

struct LayoutInfo {
  Layout layout;
  std::string_view name;
  std::string_view sentence;
};

std::span<const LayoutInfo> all_layouts();
std::string_view name(Layout layout);
std::optional<Layout> layout_from_name(std::string_view name);

}  // namespace ktx

#include "lib/families/not_loaded.h"

#include <algorithm>

#include "lib/support/strings.h"

namespace ktx::families {

const std::vector<NotLoaded>& all_not_loaded() {
  static const std::vector<NotLoaded> all = {
#define KTX_NOT_LOADED(names, needs) {names, needs},
#include "lib/families/not_loaded.def"
#undef KTX_NOT_LOADED
  };
  return all;
}

std::string_view needs_of(std::string_view name) {
  for (const NotLoaded& row : all_not_loaded()) {
    const auto names = split(row.names, ' ');
    if (!name.empty() && std::ranges::find(names, name) != names.end()) return row.needs;
  }
  return {};
}

}  // namespace ktx::families

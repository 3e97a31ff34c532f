// Models that are known and not loaded, and what each would need.
#pragma once

#include <string_view>
#include <vector>

namespace ktx::families {

struct NotLoaded {
  std::string_view names;  // of general.architecture and model_type, with spaces between them
  std::string_view needs;
};

const std::vector<NotLoaded>& all_not_loaded();

// What a model of this name would need; empty where it is unknown.
std::string_view needs_of(std::string_view name);

}  // namespace ktx::families

// entry.json of a plan's folder.
#pragma once

#include <optional>
#include <string>

#include "lib/plan_cache/plan_cache.h"

namespace ktx::plan_cache {

// "3f2a...91", which a folder's name must be to count as a plan's.
bool is_entry_name(const std::string& name);
std::string entry_name(const std::string& content, const std::string& compiler,
                       const std::string& recipe);

// What stands in the folder; nothing where no file in it is the cache's. Where entry.json is
// missing or damaged, the name comes from the files, and no request can match it.
std::optional<CachedPlan> read_entry(const std::string& folder, const std::string& id);
Status write_entry(const std::string& folder, const CachedPlan& plan);

// NAME.ktxplan in the folder.
std::string plan_path(const std::string& folder, const CachedPlan& plan);

// Removes what the cache has put there and then the folder, if nothing else is in it. The plan goes
// first: a folder without one is an unfinished one, whenever this ends.
Status remove_entry(const std::string& folder);

}  // namespace ktx::plan_cache

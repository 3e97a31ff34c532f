// GGUFs in the cache that ktx-pull has fetched from hubs, for their removal.
//
//   for (const PulledModel& model : pulled_models("~/.cache/ktx/models")) ...
//   remove_pulled(model);      // all shards, and what a broken fetch or move has left
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lib/support/result.h"

namespace ktx::plan_cache {

struct PulledModel {
  std::string name;                // of the file, as plans are called
  std::vector<std::string> files;  // as they are called when whole, the first shard first
  uint64_t bytes = 0;              // on the disk, also of *.work and *.moving
  int64_t last_use = 0;            // when it was fetched or read last; seconds since 1970
};

// In OWNER/NAME/ of the folder and below: the last used ones first. Files that do not end in .gguf
// (or .gguf.work, .gguf.moving) are not looked at, and no link is followed.
std::vector<PulledModel> pulled_models(const std::string& folder);

// False where a program fetches it or moves it now.
Result<bool> remove_pulled(const PulledModel& model);

// Removes what a broken move has left of a file, FILE.moving. False where a program moves it now.
Result<bool> remove_rest(const std::string& file);

}  // namespace ktx::plan_cache

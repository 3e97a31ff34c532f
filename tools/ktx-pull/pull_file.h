// Fetches one file of a hub, checks it, and puts it in place.
//
// What has arrived stands in FILE.work, of the file's whole size, with a journal behind its end:
// the SHA-256 that it is to have, and a byte for each part that is there. A broken pull leaves it,
// and the next one fetches the other parts only. The SHA-256 is computed while parts arrive, and
// the file gets its name when it is the hub's.
#pragma once

#include <functional>
#include <string>

#include "tools/ktx-pull/hub.h"
#include "tools/ktx-pull/hub_files.h"

namespace ktx::tools {

struct PullSettings {
  int connections = 8;
  uint64_t part_bytes = 16 << 20;
  // Bytes of all files, as they arrive, and again as they are checked.
  std::function<void(uint64_t)> arrived, checked;
};

Status pull_file(const Hub& hub, const std::string& url, const HubFile& file,
                 const std::string& path, const PullSettings& settings);

}  // namespace ktx::tools

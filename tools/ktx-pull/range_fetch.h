// Fetches the missing parts of a file by several ranges at once.
//
//   KTX_TRY(fetch_ranges(hub, url, "m.gguf", bytes, parts, {.connections = 8}, sink));
//
// A connection that is cut goes on where it was; an address of a redirect that has expired is asked
// for again; waits of the hub (429, Retry-After) hold all connections. Fails after kMostFailures in
// a row that have brought next to nothing.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "lib/support/result.h"
#include "tools/ktx-pull/hub.h"

namespace ktx::tools {

struct RangeSink {
  std::function<Status(uint64_t offset, std::span<const std::byte>)> write;
  std::function<Status(ByteRange)> finished;  // a part, as it was given
};

Status fetch_ranges(const Hub& hub, const std::string& url, const std::string& what,
                    uint64_t file_bytes, const std::vector<ByteRange>& parts, int connections,
                    const RangeSink& sink);

}  // namespace ktx::tools

// Generates the next tokens of a session, as a caller does.
#pragma once

#include <cstdint>
#include <vector>

#include "lib/runtime/session/session.h"

namespace ktx::runtime {

// At most `count`; fewer where the session ends.
inline std::vector<int32_t> generate(Session& session, int count) {
  std::vector<int32_t> ids;
  for (int i = 0; i < count; ++i) {
    const Next next = session.next().take();
    if (next.outcome != Outcome::Ok) break;
    ids.push_back(next.id);
  }
  return ids;
}

}  // namespace ktx::runtime

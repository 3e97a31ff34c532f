#include "lib/passes/placement/chunk_tokens.h"

#include <algorithm>

namespace ktx::passes {
namespace {

constexpr int64_t kLeast = 512;
constexpr int64_t kLargest = 1024;
constexpr int64_t kTokensPerExpert = 64;
constexpr int64_t kStreamed = 4096;

}  // namespace

int64_t chunk_tokens(const ir::ModuleGraph& modules, int64_t stream_tokens) {
  if (stream_tokens > 0) return kStreamed;
  int64_t chunk = kLeast;
  for (const ir::Module& module : modules.modules) {
    const auto* router = std::get_if<ir::RouterInfo>(&module.info);
    if (!router || router->attrs.top_k <= 0) continue;
    while (chunk < kLargest &&
           chunk * router->attrs.top_k < kTokensPerExpert * int64_t{router->attrs.experts}) {
      chunk *= 2;
    }
  }
  return std::min(chunk, kLargest);
}

}  // namespace ktx::passes

#include "lib/runtime/gpu/gpu_graphs.h"

#include <fmt/format.h>

#include "lib/runtime/gpu/gpu_queue.h"
#include "lib/support/strings.h"
#include "lib/support/timer.h"

namespace ktx::runtime {
namespace {

Status capture_bucket(GpuState& s, int bucket) {
  const GpuShape shape = s.buckets.shape(bucket);
  s.graphs[bucket].resize(s.parts.parts.size());
  for (size_t p = 0; p < s.parts.parts.size(); ++p) {
    const Part& part = s.parts.parts[p];
    if (!can_be_graph(s, part)) continue;
    s.graphs[bucket][p] =
        KTX_TRY(capture(s.devices[part.device], [&] { return queue_part(s, part, shape); }));
  }
  return {};
}

}  // namespace

Status capture_graphs(GpuState& s) {
  s.graphs.resize(s.buckets.count());
  if (!s.setup.gpu_graphs) return {};
  const Timer timer;
  std::vector<uint64_t> before;
  for (GpuDevice& device : s.devices) {
    KTX_TRY(device.gpu->finish());
    before.push_back(device.gpu->free_bytes());
  }
  for (int bucket = 0; bucket < s.buckets.count(); ++bucket) KTX_TRY(capture_bucket(s, bucket));
  uint64_t bytes = 0;
  for (size_t d = 0; d < s.devices.size(); ++d) {
    const uint64_t now = s.devices[d].gpu->free_bytes();
    if (now < before[d]) bytes += before[d] - now;
  }
  std::vector<std::string> tokens;
  for (int64_t n : s.buckets.token_buckets()) tokens.push_back(std::to_string(n));
  s.notes.push_back(fmt::format("graphs for steps of {} tokens, up to {} positions: {} in {:.2f} s",
                                join(tokens, ", "), s.buckets.position_buckets().back(),
                                human_bytes(bytes), timer.seconds()));
  return {};
}

}  // namespace ktx::runtime

#include "lib/runtime/gpu/gpu_graphs.h"

#include <fmt/format.h>

#include <map>

#include "lib/runtime/gpu/gpu_queue.h"
#include "lib/support/strings.h"
#include "lib/support/timer.h"

namespace ktx::runtime {
namespace {

// The end of the parts from `first` on that can be graphs and that the CPU waits for at their end
// alone.
size_t end_of_run(const GpuState& s, size_t first) {
  size_t end = first;
  do {
    ++end;
  } while (end < s.parts.parts.size() && can_be_graph(s, s.parts.parts[end]) &&
           !s.parts.parts[end - 1].awaited);
  return end;
}

void join_parts(GpuState& s) {
  const std::vector<Part>& parts = s.parts.parts;
  for (size_t p = 0; p < parts.size(); ++p) s.graph_of_part.push_back(p);
  s.run_of_part = s.graph_of_part;
  const bool joined = s.sums != GpuState::Sums::Copied;
  for (size_t first = 0; joined && first < parts.size(); ++first) {
    if (!can_be_graph(s, parts[first])) continue;
    const size_t end = end_of_run(s, first);
    std::map<int, size_t> of_device;
    for (size_t p = first; p < end; ++p) {
      s.graph_of_part[p] = of_device.try_emplace(parts[p].device, p).first->second;
      s.run_of_part[p] = first;
    }
    first = end - 1;
  }
}

Status capture_bucket(GpuState& s, int bucket) {
  const GpuShape shape = s.buckets.shape(bucket);
  const std::vector<Part>& parts = s.parts.parts;
  s.graphs[bucket].resize(parts.size());
  for (size_t first = 0; first < parts.size(); ++first) {
    if (!can_be_graph(s, parts[first]) || s.graph_of_part[first] != first) continue;
    s.graphs[bucket][first] = KTX_TRY(capture(s.devices[parts[first].device], [&]() -> Status {
      for (size_t p = first; p < parts.size(); ++p) {
        if (s.graph_of_part[p] == first) KTX_TRY(queue_part(s, parts[p], shape));
      }
      return {};
    }));
  }
  return {};
}

}  // namespace

Status capture_graphs(GpuState& s) {
  join_parts(s);
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

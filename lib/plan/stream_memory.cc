#include "lib/plan/stream_memory.h"

#include <algorithm>

#include "lib/formats/layout_size.h"
#include "lib/plan/plan_step_list.h"
#include "lib/support/byte_reader.h"

namespace ktx::plan {
namespace {

uint64_t aligned(uint64_t bytes) {
  return (bytes + kStreamAlignment - 1) / kStreamAlignment * kStreamAlignment;
}

}  // namespace

uint64_t tile_bytes(const BlobRecord& blob) {
  const auto matrix =
      matrix_bytes(Layout::Marlin, static_cast<DType>(blob.dtype), blob.rows, blob.cols);
  return static_cast<uint64_t>(matrix.value_or(0)) * static_cast<uint64_t>(blob.matrices);
}

std::vector<launches::Stream> streams(const PlanView& plan) {
  const bool any = std::ranges::any_of(plan.launches, [&](const LaunchRecord& launch) {
    if (launch.fused_op != kNone || launch.first_step >= plan.launch_steps.size()) return false;
    const uint32_t step = plan.launch_steps[launch.first_step];
    return step < plan.steps.size() && plan.string(plan.steps[step].device) == "cpu";
  });
  if (!any) return {};
  auto read = read_launches(plan);
  return read ? launches::streams_of(step_list(plan), read->parts, read->launches)
              : std::vector<launches::Stream>();
}

Result<StreamMemory> stream_memory(const PlanView& plan, std::span<const launches::Stream> streams,
                                   std::string_view device, const RunShape& shape) {
  StreamMemory memory;
  std::vector<BufferRecord> buffers(plan.buffers.size());
  for (const launches::Stream& stream : streams) {
    if (stream.device != device) continue;
    for (const LaunchRecord& launch : plan.launches) {
      const uint32_t step = plan.launch_steps[launch.first_step];
      if (launch.fused_op != kNone || step != static_cast<uint32_t>(stream.steps[0])) continue;
      const int64_t least = launch.least_tokens;
      memory.least_tokens = memory.least_tokens == 0 ? least : std::min(memory.least_tokens, least);
    }
    uint64_t panels = 0, tiles = 0;
    for (int32_t blob : stream.products) {
      panels += aligned(plan.blobs[blob].size);
      tiles += aligned(tile_bytes(plan.blobs[blob]));
    }
    memory.panel_bytes = std::max(memory.panel_bytes, panels);
    memory.tile_bytes = std::max(memory.tile_bytes, tiles);
    for (int32_t blob : stream.vectors) memory.vector_bytes += aligned(plan.blobs[blob].size);
    for (int32_t value : stream.values) {
      const uint32_t buffer = plan.values[value].buffer;
      buffers[buffer] = plan.buffers[buffer];
    }
  }
  if (memory.least_tokens == 0 || shape.step_tokens < memory.least_tokens) return StreamMemory();
  memory.arena = KTX_TRY(lay_out_arena(buffers, shape.step_tokens, shape.step_outputs));
  return memory;
}

}  // namespace ktx::plan

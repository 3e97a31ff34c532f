#include "lib/plan/device_memory.h"

#include <algorithm>
#include <set>

#include "lib/plan/given_rows.h"
#include "lib/plan/state_layout.h"
#include "lib/plan/stream_memory.h"
#include "lib/target/host_device.h"

namespace ktx::plan {

std::vector<std::string> plan_devices(const PlanView& plan) {
  std::set<std::string> names;
  for (const program::Step& step : plan.program->steps) names.insert(step.device);
  for (const program::Blob& blob : plan.program->blobs) names.insert(blob.device);
  for (const program::KvSlot& slot : plan.program->kv_slots) names.insert(slot.device);
  names.erase("cpu");
  names.erase(std::string(program::kNoDevice));
  std::vector<std::string> devices{"cpu"};
  devices.insert(devices.end(), names.begin(), names.end());
  return devices;
}

std::vector<std::string> plan_gpus(const PlanView& plan) {
  std::vector<std::string> gpus = plan_devices(plan);
  std::erase_if(gpus, [](const std::string& device) {
    return target::is_cpu(device) || !target::is_first_host(device);
  });
  return gpus;
}

bool uses_gpus(const PlanView& plan) {
  return !plan_gpus(plan).empty();
}

bool any_host_uses_gpus(const PlanView& plan) {
  return !std::ranges::all_of(plan_devices(plan), target::is_cpu);
}

std::vector<bool> slots_on(const PlanView& plan, std::string_view device) {
  std::vector<bool> here;
  for (const program::KvSlot& slot : plan.program->kv_slots) here.push_back(slot.device == device);
  return here;
}

Result<ArenaLayout> lay_out_device_arena(const PlanView& plan, const std::string& device,
                                         int64_t tokens, int64_t outputs) {
  return lay_out_arena(program::buffers_on(*plan.program, device), tokens, outputs);
}

namespace {

// By blob: whether it is read as a table of n-grams alone.
std::vector<bool> ngram_tables(const program::Program& program) {
  std::vector<bool> tables(program.blobs.size()), others(program.blobs.size());
  for (const program::Step& step : program.steps) {
    for (size_t i = 0; i < step.weights.size(); ++i) {
      if (step.weights[i] == program::kAbsent) continue;
      const bool table = step.op == StepOp::EmbedNgrams && i == 0;
      (table ? tables : others)[static_cast<size_t>(step.weights[i])] = true;
    }
  }
  for (size_t i = 0; i < tables.size(); ++i) tables[i] = tables[i] && !others[i];
  return tables;
}

// Takes what is between `hole`'s ends out of the last of the ranges, where it is inside of that.
void cut_out(const FileRange& hole, std::vector<FileRange>& ranges) {
  FileRange& last = ranges.back();
  const uint64_t end = last.offset + last.bytes, hole_end = hole.offset + hole.bytes;
  if (hole.offset < last.offset || hole_end > end) return;
  last.bytes = hole.offset - last.offset;
  ranges.push_back({hole_end, end - hole_end});
}

}  // namespace

std::vector<FileRange> weight_ranges(const PlanView& plan, std::string_view device) {
  std::vector<FileRange> ranges, holes;
  const std::vector<bool> tables = ngram_tables(*plan.program);
  for (size_t i = 0; i < tables.size(); ++i) {
    if (tables[i]) holes.push_back({plan.blobs[i].offset, plan.blobs[i].size});
  }
  std::ranges::sort(holes, {}, &FileRange::offset);
  for (const SegmentRecord& segment : plan.segments) {
    const bool weights = segment.kind == static_cast<uint32_t>(SegmentKind::Weights);
    const bool here = device.empty() || plan.string(segment.device) == device;
    if (!weights || !here) continue;
    ranges.push_back({segment.offset, segment.size});
    for (const FileRange& hole : holes) cut_out(hole, ranges);
  }
  std::erase_if(ranges, [](const FileRange& range) { return range.bytes == 0; });
  return ranges;
}

uint64_t weight_bytes(const PlanView& plan, std::string_view device) {
  uint64_t sum = 0;
  for (const FileRange& range : weight_ranges(plan, device)) sum += range.bytes;
  return sum;
}

Result<MemoryEstimate> estimate_memory(const PlanView& plan, const RunShape& shape) {
  const program::Program& program = *plan.program;
  MemoryEstimate estimate = KTX_TRY(estimate_memory(
      weight_bytes(plan), program.buffers, program.kv_slots, kv_widths(program.kv_slots), shape));
  for (const SegmentRecord& segment : plan.segments) estimate.carried_bytes += segment.size;
  estimate.carried_bytes -= estimate.weight_bytes;
  return estimate;
}

Result<std::vector<DeviceMemory>> memory_by_device(const PlanView& plan, const RunShape& shape,
                                                   StreamSlots slots_of_streams) {
  const program::Program& program = *plan.program;
  std::vector<DeviceMemory> all;
  for (const std::string& name : plan_devices(plan)) {
    std::vector<program::KvSlot> slots = program.kv_slots;
    std::erase_if(slots, [&](const program::KvSlot& slot) { return slot.device != name; });
    RunShape own = shape;
    own.state_bytes = state_layout(plan, name).bytes();
    const MemoryEstimate estimate =
        KTX_TRY(estimate_memory(weight_bytes(plan, name), program::buffers_on(program, name), slots,
                                kv_widths(program.kv_slots), own));
    const StreamMemory stream =
        KTX_TRY(stream_memory(program, plan.streams, name, shape, slots_of_streams));
    const int64_t given = target::is_cpu(name) ? 0 : given_floats_on_gpus(plan);
    const auto given_bytes = static_cast<uint64_t>(given * shape.step_tokens) * sizeof(float);
    all.push_back({name, estimate.weight_bytes, estimate.arena_bytes + given_bytes, stream.total(),
                   estimate.kv_token, estimate.kv_bytes, own.state_bytes, estimate.state_bytes});
  }
  return all;
}

}  // namespace ktx::plan

#include "lib/runtime/gpu/gpu_sums.h"

#include <fmt/format.h>

#include <algorithm>

#include "lib/plan/device_memory.h"
#include "lib/runtime/gpu/skinny_graphs.h"

namespace ktx::runtime {
namespace {

int64_t width_of(const GpuState& s, program::ValueId value) {
  return program::row_elements(s.program.values[value]);
}

int64_t rows_of(const GpuState& s, program::ValueId value, const GpuShape& shape) {
  return shape.rows(s.program.values[value].rows);
}

}  // namespace

Status join_team(GpuState& s) {
  std::vector<size_t> numbers;
  for (const Part& part : s.parts.parts) {
    if (part.kind != Part::Kind::Reduce) continue;
    const auto number = static_cast<size_t>(part.device);
    if (std::ranges::find(numbers, number) == numbers.end()) numbers.push_back(number);
  }
  if (numbers.empty()) return {};
  std::ranges::sort(numbers);
  for (const std::string& device : program::buffer_devices(s.program)) {
    s.gpu_of_buffer.push_back(
        static_cast<int>(std::ranges::find(s.parts.gpus, device) - s.parts.gpus.begin()));
  }
  std::vector<Gpu*> team;
  for (const size_t number : numbers) team.push_back(s.devices[number].gpu.get());
  bool reach = true;
  for (const size_t number : numbers) {
    GpuDevice& device = s.devices[number];
    for (Gpu* const other : team)
      reach = KTX_TRY(device.named(device.gpu->reaches(*other))) && reach;
  }
  bool joined = true;
  s.rank_of_gpu.resize(s.devices.size());
  for (size_t rank = 0; rank < team.size(); ++rank) {
    GpuDevice& device = s.devices[numbers[rank]];
    s.rank_of_gpu[numbers[rank]] = rank;
    joined = KTX_TRY(device.named(device.gpu->join_team(team, rank, !reach))) && joined;
  }
  using Sums = GpuState::Sums;
  s.sums = !joined ? Sums::Copied : reach ? Sums::Peers : Sums::Host;
  if (s.sums == Sums::Peers) return {};
  s.notes.push_back(fmt::format(
      "{} and {} more cannot read each other's memory: their sums {}, at a fraction of the speed",
      s.devices[numbers[0]].name, numbers.size() - 1,
      s.sums == Sums::Host ? "go through the host's memory" : "are copied by the host"));
  return {};
}

// Through the host's memory only for passes that may be graphs: sums of more tokens are faster as
// copies.
bool sums_by_kernels(const GpuState& s, const GpuShape& shape) {
  const int64_t most = std::max(s.buckets.largest_batch(), SkinnyGraphs::kMostTokens);
  return s.sums == GpuState::Sums::Peers ||
         (s.sums == GpuState::Sums::Host && shape.tokens <= most);
}

int64_t sum_bytes(const GpuState& s, const GpuShape& shape) {
  int64_t most = 0;
  for (const Part& part : s.parts.parts) {
    if (part.kind != Part::Kind::Reduce || sums_by_kernels(s, shape)) continue;
    for (const program::Step& step : part.steps(s.program)) {
      const program::ValueId y = step.outputs[0].value;
      most = std::max(most, rows_of(s, y, shape) * width_of(s, y) * 4);
    }
  }
  return most;
}

Status queue_sum(GpuState& s, const Part& part, const program::Step& step, const GpuShape& shape) {
  GpuDevice& device = s.devices[part.device];
  Gpu& gpu = *device.gpu;
  const program::ValueId value = step.outputs[0].value;
  GpuSum sum{.y = reinterpret_cast<float*>(s.place(part.device, value)),
             .accumulate = std::get<AllReduceAttrs>(step.attrs).accumulate != 0,
             .parts = {},
             .ranks = {},
             .rows = rows_of(s, value, shape),
             .width = width_of(s, value)};
  const auto bytes = static_cast<uint64_t>(sum.rows * sum.width) * sizeof(float);
  std::vector<const float*> parts;
  std::vector<size_t> ranks;
  const bool by_kernels = sums_by_kernels(s, shape);
  bool first = !sum.accumulate;
  for (const program::View& operand : step.inputs) {
    if (operand.value == program::kAbsent) continue;
    const int other = s.gpu_of_buffer[s.program.values[operand.value].buffer];
    const std::byte* from = s.place(other, operand.value);
    parts.push_back(reinterpret_cast<const float*>(from));
    ranks.push_back(s.rank_of_gpu[static_cast<size_t>(other)]);
    if (by_kernels) continue;
    std::byte* const to = first ? reinterpret_cast<std::byte*>(sum.y) : device.workspace.data();
    if (other != part.device) {
      KTX_TRY(gpu.copy_from(*s.devices[static_cast<size_t>(other)].gpu, to, from, bytes));
      from = to;
    } else if (first) {
      KTX_TRY(gpu.copy(to, from, bytes));
    }
    if (!first) {
      KTX_TRY(gpu.add(sum.y, reinterpret_cast<const float*>(from), sum.rows, sum.width));
    }
    first = false;
  }
  if (!by_kernels) return {};
  sum.parts = parts;
  sum.ranks = ranks;
  return gpu.sum(sum);
}

}  // namespace ktx::runtime

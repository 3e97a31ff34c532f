#include "lib/passes/cost/estimate.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <span>

#include "lib/passes/cost/forwards_over_hosts.h"
#include "lib/passes/cost/hand_overs.h"
#include "lib/passes/cost/launched_steps.h"
#include "lib/passes/cost/module_bytes.h"
#include "lib/passes/cost/target_devices.h"
#include "lib/passes/lower/deferred_experts.h"
#include "lib/passes/lower/division.h"
#include "lib/passes/lower/expert_groups.h"
#include "lib/passes/lower/prefill_device.h"
#include "lib/plan/expert_memory.h"
#include "lib/plan/state_layout.h"
#include "lib/program/forwards_in_flight.h"
#include "lib/target/host_device.h"

namespace ktx::passes {
namespace {

void describe_device(DeviceUse& use, const PricedModel& model, const DeviceId& device) {
  const bool gpu = device.gpu() >= 0;
  use.reserve_bytes = gpu ? kGpuReserve : kCpuReserve;
  if (!model.check.target_given) return;
  if (!gpu) {
    const target::CpuTarget& cpu = cpu_of(model.target, device);
    use.capacity = cpu.memory_bytes;
    use.numa_nodes = std::max(1, static_cast<int>(cpu.numa.size()));
  } else if (const target::GpuTarget* facts = gpu_of(model.target, device)) {
    use.capacity = facts->memory_bytes;
  }
}

// Sums by device, in the order of hosts, on each the CPU first.
class Sums {
 public:
  explicit Sums(const PricedModel& model) : model_(model) {}
  DeviceUse& at(const DeviceId& device) {
    auto [found, added] = uses_.try_emplace(device_order(model_.target, device));
    if (added) {
      found->second.name = to_string(device.gpu() < 0 ? device.cpu_beside() : device);
      describe_device(found->second, model_, device);
    }
    return found->second;
  }
  std::vector<DeviceUse> take() {
    std::vector<DeviceUse> all;
    for (auto& [order, use] : uses_) all.push_back(std::move(use));
    return all;
  }

 private:
  const PricedModel& model_;
  std::map<std::pair<size_t, int>, DeviceUse> uses_;  // by device_order()
};

void add_weights(const PricedModel& model, const Placement& placement, Sums& sums) {
  // A tensor that two modules share is kept once on each device.
  std::set<std::pair<std::string, std::string>> kept;
  for (const ir::Module& module : model.modules.modules) {
    if (module.params.empty()) continue;
    const ModulePlace& place = placement.at(model.modules, module);
    for (const DeviceId& device : devices_of(place)) {
      DeviceUse& use = sums.at(device);
      for (const ir::Param& param : module.params) {
        const uint64_t bytes = param_bytes(param, module.decision.op == "dense");
        const std::string tensor = param.sources.empty() ? "" : param.sources[0].tensor;
        const bool whole = param.sources.size() == 1 && param.sources[0].row_count < 0;
        if (whole && !kept.emplace(use.name, tensor).second) continue;
        const bool table = module.role == ir::Role::NgramTable;
        (table ? use.table_bytes : use.weight_bytes) += bytes_on(place, device, bytes);
      }
    }
  }
}

// Two slots for panels of experts and a place for tiles (lib/plan/stream_memory.h).
uint64_t slot_bytes(const ir::Module& experts, const ModulePlace& place, plan::StreamSlots slots) {
  const DeviceId& cpu = place.device;
  const uint64_t layer = bytes_on(place, cpu, placed_bytes(experts));
  if (slots == plan::StreamSlots::Layer) return times(3, layer);
  uint64_t largest = 0, down = 0;
  for (const ir::Param& param : experts.params) {
    const uint64_t bytes = bytes_on(place, cpu, param_bytes(param, false));
    largest = std::max(largest, bytes);
    if (param.name == "down") down = bytes;
  }
  const uint64_t tiles = std::max(down, layer - down);  // of gate and up, or of down
  return tiles + (slots == plan::StreamSlots::Matrix ? 2 * largest : largest / 4);
}

void add_slot(const program::KvSlot& slot, const plan::RunShape& shape,
              const plan::KvBlocks& blocks, DeviceUse& use) {
  const plan::KvTokenBytes token = plan::kv_token_bytes({&slot, 1}, shape.kv_type);
  for (const program::SequenceKind kind : program::kBlockKinds) use.kv_token[kind] += token[kind];
  use.kv_bytes += token.times(blocks).value_or(UINT64_MAX / 4);
}

// Keys and values of a layer are stored on each device where another layer reads them.
void add_copied_slots(const PricedModel& model, const Placement& placement,
                      std::span<const program::KvSlot> slots, const plan::KvBlocks& blocks,
                      Sums& sums) {
  const auto attention_device = attention_devices(model.modules, placement);
  std::set<std::pair<int32_t, DeviceId>> copied;
  for (const ir::Module& module : model.modules.modules) {
    const auto* a = std::get_if<ir::AttentionInfo>(&module.info);
    const auto owner = a ? attention_device.find(a->keys_of_layer) : attention_device.end();
    const DeviceId& device = placement.at(model.modules, module).device;
    if (owner == attention_device.end() || owner->second == device) continue;
    if (!copied.emplace(a->keys_of_layer, device).second) continue;
    for (const program::KvSlot& slot : slots) {
      if (slot.layer == a->keys_of_layer) {
        add_slot(slot, model.check.shape, blocks, sums.at(device));
      }
    }
  }
}

// For experts that are divided over hosts: the bytes of a row for each pair of token and expert,
// which each of the hosts has.
uint64_t bytes_of_pair_rows(const PricedModel& model, const Placement& placement) {
  int64_t floats = 0;
  for (const ir::Module& module : model.modules.modules) {
    const auto* info = std::get_if<ir::ExpertsInfo>(&module.info);
    const ModulePlace& place = placement.at(model.modules, module);
    if (info && cpu_groups(place) > 1)
      floats = std::max<int64_t>(floats, info->top_k * info->hidden);
  }
  return times(static_cast<uint64_t>(floats) * sizeof(float),
               static_cast<uint64_t>(placement.streams.way.chunk));
}

void add_streams(const PricedModel& model, const Placement& placement, plan::StreamSlots slots,
                 Sums& sums) {
  const auto attention_device = attention_devices(model.modules, placement);
  for (const ir::Module& module : model.modules.modules) {
    const ModulePlace& place = placement.at(model.modules, module);
    if (place.experts == 0 || !place.device.is_cpu()) continue;
    if (!can_be_streamed(model.rules, module)) continue;
    const auto device = attention_device.find(module.layer);
    if (device == attention_device.end() || device->second.gpu() < 0) continue;
    if (device->second.host != place.device.host) continue;
    DeviceUse& use = sums.at(device->second);
    use.stream_bytes = std::max(use.stream_bytes, slot_bytes(module, place, slots));
    use.stream_slots = slots;
  }
}

bool is_expert_matrix(const ir::Param& param) {
  return param.name == "gate" || param.name == "up" || param.name == "down";
}

double disk_gbps(const PricedModel& model) {
  if (model.check.disk_gbps > 0) return model.check.disk_gbps;
  return model.target.cpu.disk_gbps > 0 ? model.target.cpu.disk_gbps : kDiskGbps;
}

// Which of the CPU's experts may be on disk: none of a plan for several hosts.
void add_disk(const PricedModel& model, const Placement& placement, Sums& sums) {
  const DeviceId cpu;
  uint64_t all = 0, slot = 0, slots = 0;
  for (const ir::Module& module : model.modules.modules) {
    const ModulePlace& place = placement.at(model.modules, module);
    const auto here = static_cast<uint64_t>(experts_on(place, cpu));
    for (const DeviceId& device : devices_of(place)) {
      if (!device.host.empty()) return;
    }
    if (here == 0) continue;
    uint64_t room = 0;
    for (const ir::Param& param : module.params) {
      if (!is_expert_matrix(param)) continue;
      const uint64_t bytes = bytes_on(place, cpu, param_bytes(param, false));
      all += bytes;
      room += plan::slice_room(bytes / here);
    }
    slot = std::max(slot, room);
    slots = std::max(slots, here);
  }
  if (all == 0) return;
  DeviceUse& use = sums.at(cpu);
  use.expert_bytes = all;
  use.least_expert_bytes = times(slot, slots);
}

// A token waits for its experts; those of a prompt are read beside the computation.
void add_reads(double bytes, double gbps, ForwardTime& time) {
  if (bytes == 0) return;
  time.disk_bytes = static_cast<uint64_t>(bytes);
  time.disk_seconds = bytes / (gbps * 1e9);
  const double beside = time.tokens > 1 ? std::min(time.seconds, time.disk_seconds) : 0;
  time.beside_seconds += beside;
  time.seconds += time.disk_seconds - beside;
}

// Reading the cache of a full context, once a token.
double cache_seconds(const Estimate& estimate, const target::Target& target) {
  const auto ctx = static_cast<double>(estimate.shape.ctx);
  double seconds = 0;
  for (const DeviceUse& use : estimate.devices) {
    double bytes = static_cast<double>(use.kv_token.whole) * ctx;
    for (const program::SequenceKind kind : program::kPassingKinds) {
      bytes += static_cast<double>(use.kv_token[kind]) *
               std::min(ctx, static_cast<double>(estimate.widths[kind]));
    }
    const double rate = rates_of(target, target::device_id(use.name)).read;
    if (rate > 0) seconds += bytes / rate;
  }
  return seconds;
}

// `memory`: what a device needs.
void find_max_ctx(Estimate& estimate, int64_t model_ctx, uint64_t (DeviceUse::*memory)() const) {
  const auto total = [&](const DeviceUse& use) { return (use.*memory)(); };
  int64_t most = INT64_MAX;
  bool known = false;
  plan::RunShape longest = estimate.shape;
  longest.ctx = int64_t{1} << 32;
  const plan::KvBlocks of_longest =
      plan::kv_blocks(estimate.widths, longest).value_or(plan::KvBlocks()).passing();
  // A context takes nothing where no layer attends to all of it.
  const bool any_length = std::ranges::all_of(
      estimate.devices, [](const DeviceUse& use) { return use.kv_token.whole == 0; });
  for (const DeviceUse& use : estimate.devices) {
    if (use.capacity > 0 && any_length) known = model_ctx > 0;
    if (use.capacity == 0 || use.kv_token.whole == 0) continue;
    known = true;
    // The windows of the longest context; those of a shorter one may take less.
    const uint64_t windows = use.kv_token.times(of_longest).value_or(UINT64_MAX / 4);
    const uint64_t taken = total(use) - use.kv_bytes + windows;
    const uint64_t room = use.capacity > taken ? use.capacity - taken : 0;
    const uint64_t per_token =
        times(use.kv_token.whole, static_cast<uint64_t>(estimate.shape.max_batch));
    const auto blocks = static_cast<int64_t>(room / times(per_token, plan::kKvBlockTokens));
    most = std::min(most, blocks * plan::kKvBlockTokens);
  }
  if (known && estimate.budget_tokens >= 0) {
    most = std::min(most, estimate.budget_tokens / std::max<int64_t>(1, estimate.shape.max_batch));
  }
  for (const DeviceUse& use : estimate.devices) {
    if (use.capacity > 0 && total(use) - use.kv_bytes > use.capacity) most = 0;
  }
  if (known || most == 0) estimate.max_ctx = model_ctx > 0 ? std::min(most, model_ctx) : most;
}

// For all contexts, or as many as the budget allows.
Status count_blocks(const PricedModel& model, const MemoryFormulas& formulas, Estimate& estimate) {
  estimate.widths = plan::kv_widths(formulas.kv_slots);
  estimate.kv_budget_bytes = std::max<int64_t>(0, model.check.kv_budget_bytes);
  const plan::KvTokenBytes token = plan::kv_token_bytes(formulas.kv_slots, estimate.shape.kv_type);
  estimate.blocks = KTX_TRY(plan::kv_blocks(estimate.widths, estimate.shape, token,
                                            static_cast<uint64_t>(estimate.kv_budget_bytes)));
  const auto wanted = plan::kv_blocks(estimate.widths, estimate.shape);
  if (wanted && estimate.blocks.whole < wanted->whole) {
    estimate.budget_tokens = static_cast<int64_t>(estimate.blocks.whole) * plan::kKvBlockTokens;
  }
  return {};
}

Result<Estimate> memory_with(const PricedModel& model, const MemoryFormulas& formulas,
                             const Placement& placement, plan::StreamSlots slots) {
  using State = MemoryFormulas::State;
  Estimate estimate;
  estimate.shape = model.check.shape;
  estimate.shape.step_tokens = placement.streams.way.chunk;
  estimate.disk_gbps = disk_gbps(model);
  plan::StateLayout all_states;
  for (const State& state : formulas.states) all_states.add(state.number, state.floats);
  estimate.shape.state_bytes = all_states.bytes();
  const plan::RunShape& shape = estimate.shape;
  Sums sums(model);
  add_weights(model, placement, sums);
  auto attention_device = attention_devices(model.modules, placement);
  const auto teams = attention_teams(model.modules, placement, DividedKind::Attention);
  const auto state_teams = attention_teams(model.modules, placement, DividedKind::States);
  KTX_TRY(count_blocks(model, formulas, estimate));
  const plan::KvBlocks& blocks = estimate.blocks;
  for (const program::KvSlot& slot : formulas.kv_slots) {
    const auto team = teams.find(slot.layer);
    if (team == teams.end()) {
      add_slot(slot, shape, blocks, sums.at(attention_device[slot.layer]));
      continue;
    }
    program::KvSlot part = slot;
    const auto gpus = static_cast<int64_t>(team->second.size());
    part.kv_heads = static_cast<int32_t>(heads_of_one(slot.kv_heads, gpus));
    for (const DeviceId& gpu : team->second) add_slot(part, shape, blocks, sums.at(gpu));
  }
  add_copied_slots(model, placement, formulas.kv_slots, blocks, sums);
  std::map<DeviceId, plan::StateLayout> states;
  for (const State& state : formulas.states) {
    const auto team = state_teams.find(state.layer);
    if (team == state_teams.end()) {
      states[attention_device[state.layer]].add(state.number, state.floats);
      continue;
    }
    const auto gpus = static_cast<int64_t>(team->second.size());
    for (const DeviceId& gpu : team->second) states[gpu].add(state.number, state.floats / gpus);
  }
  for (const auto& [device, layout] : states) {
    sums.at(device).state_bytes += times(layout.bytes(), blocks.states);
  }
  const StreamChoice& streams = placement.streams;
  if (streams.tokens > 0 && shape.step_tokens >= streams.tokens) {
    add_streams(model, placement, slots, sums);
  }
  add_disk(model, placement, sums);
  estimate.devices = sums.take();
  std::set<std::string> with_experts;
  for (const ModulePlace& place : placement.of_module) {
    if (place.experts == 0) continue;
    for (const DeviceId& device : devices_of(place)) with_experts.insert(to_string(device));
  }
  const uint64_t pair_rows = bytes_of_pair_rows(model, placement);
  const std::vector<program::Buffer>& without = formulas.without_experts;
  for (DeviceUse& use : estimate.devices) {
    const bool all = target::is_cpu(use.name) || with_experts.contains(use.name);
    use.scratch_bytes =
        KTX_TRY(scratch_bytes(all || without.empty() ? formulas.all : without, shape));
    use.scratch_bytes +=
        target::is_cpu(use.name)
            ? pair_rows
            : static_cast<uint64_t>(formulas.given_floats * shape.step_tokens) * sizeof(float);
    if (use.stream_bytes > 0)
      use.stream_bytes += KTX_TRY(scratch_bytes(formulas.of_experts, shape));
  }
  const int64_t model_ctx = model.modules.facts.context_length;
  find_max_ctx(estimate, model_ctx, &DeviceUse::total);
  if (estimate.max_ctx == 0) {
    find_max_ctx(estimate, model_ctx, &DeviceUse::least_total);
    estimate.max_ctx_on_disk = estimate.max_ctx > 0;
  }
  return estimate;
}

// "the experts of 58 layers are on 4 hosts"; "": none are divided.
std::string division_text(const Placement& placement) {
  int64_t layers = 0;
  size_t most = 0;
  for (const ModulePlace& place : placement.of_module) {
    const size_t hosts = place.experts > 0 ? cpu_groups(place) : 0;
    layers += hosts > 1 ? 1 : 0;
    most = std::max(most, hosts);
  }
  if (layers == 0) return "";
  return fmt::format("the experts of {} layer{} are on {} hosts", layers, layers == 1 ? "" : "s",
                     most);
}

}  // namespace

Result<Estimate> memory_of(const PricedModel& model, const MemoryFormulas& formulas,
                           const Placement& placement) {
  const std::optional<plan::StreamSlots> chosen = placement.streams.way.slots;
  if (chosen) return memory_with(model, formulas, placement, *chosen);
  Estimate estimate;
  for (const plan::StreamSlots slots : plan::kStreamSlots) {
    estimate = KTX_TRY(memory_with(model, formulas, placement, slots));
    // Smaller slots only where they make a GPU large enough.
    const bool too_small = std::ranges::any_of(estimate.devices, [](const DeviceUse& use) {
      return use.stream_bytes > 0 && use.too_small();
    });
    if (!too_small) break;
  }
  return estimate;
}

namespace {

// What the first CPU has beside all else.
uint64_t room_of_experts(const Estimate& estimate, const plan::ExpertMemory& memory) {
  const DeviceUse& cpu = estimate.devices.front();
  return cpu.capacity - std::min(cpu.capacity, cpu.total() - memory.bytes);
}

// As a run does where experts are on disk (lib/runtime/experts/expert_room.h).
Status lengthen_chunk(const PricedModel& model, const MemoryFormulas& formulas, Placement placement,
                      const plan::ExpertMemory& memory, Estimate& estimate) {
  const plan::RunShape& shape = estimate.shape;
  for (const int64_t size : plan::kDiskChunks) {
    const int64_t chunk = std::min(size, shape.ctx * shape.max_batch);
    if (chunk <= shape.step_tokens) continue;
    placement.streams.way.chunk = chunk;
    Estimate longer = KTX_TRY(memory_of(model, formulas, placement));
    const uint64_t room = room_of_experts(longer, memory);
    const uint64_t scratch = longer.devices.front().scratch_bytes;
    if (room < memory.least_bytes() || scratch > room / 8) continue;
    const auto gpus = std::span(longer.devices).subspan(1);
    if (std::ranges::any_of(gpus, &DeviceUse::too_small)) continue;
    estimate.shape = longer.shape;
    estimate.devices = std::move(longer.devices);
    break;
  }
  return {};
}

}  // namespace

Result<Estimate> estimate_of(const PricedModel& model, const MemoryFormulas& formulas,
                             const Placement& placement) {
  Estimate estimate = KTX_TRY(memory_of(model, formulas, placement));
  const HandOvers hand_overs = KTX_TRY(find_hand_overs(model, placement));
  estimate.crossings = hand_overs.count();
  estimate.gpu_expert_use = gpu_expert_use(placement);
  estimate.deferral = deferral_text(model.modules, placement);
  estimate.slots = slots_text(model.modules, placement, model.profile != nullptr);
  estimate.division = division_text(placement);
  estimate.transferred_values = hand_overs.values;
  const Result<program::Program> launched = launched_steps(model, placement);
  if (!launched) return estimate;  // the findings say why
  const DeviceUse& cpu = estimate.devices.front();
  if (cpu.too_small() && cpu.expert_bytes > 0) {
    const plan::ExpertMemory memory = plan::expert_memory(*launched);
    KTX_TRY(lengthen_chunk(model, formulas, placement, memory, estimate));
    estimate.disk = experts_on_disk(*launched, model.profile, room_of_experts(estimate, memory));
  }
  auto slots = plan::StreamSlots::Layer;
  for (const DeviceUse& use : estimate.devices) slots = std::max(slots, use.stream_slots);
  estimate.forwards_in_flight = program::forwards_in_flight(*launched);
  estimate.chunks_in_flight = chunks_in_flight(*launched);
  const int64_t chunk = estimate.shape.step_tokens;
  estimate.token = predict_forward(*launched, model.target, {});
  estimate.cache_seconds = cache_seconds(estimate, model.target);
  estimate.chunk = predict_forward(
      *launched, model.target, {.tokens = chunk, .slots = slots, .joint = placement.streams.joint});
  estimate.short_chunk = predict_forward(
      *launched, model.target,
      {.tokens = std::min(kShortPrompt, chunk), .slots = slots, .joint = placement.streams.joint});
  add_reads(estimate.disk.token_bytes, estimate.disk_gbps, estimate.token);
  for (ForwardTime* const prompt : {&estimate.chunk, &estimate.short_chunk}) {
    add_reads(estimate.disk.chunk_bytes, estimate.disk_gbps, *prompt);
  }
  return estimate;
}

Result<Estimate> memory_of(const CompileState& state) {
  const PricedModel model(state);
  return memory_of(model, KTX_TRY(MemoryFormulas::make(model)), placement_of(state));
}

Result<Estimate> estimate_of(const CompileState& state) {
  const PricedModel model(state);
  const MemoryFormulas formulas = KTX_TRY(MemoryFormulas::make(model));
  Estimate estimate = KTX_TRY(estimate_of(model, formulas, placement_of(state)));
  estimate.stream_trials = state.stream_trials;
  estimate.team_trials = state.team_trials;
  return estimate;
}

}  // namespace ktx::passes

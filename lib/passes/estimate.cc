#include "lib/passes/estimate.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <set>
#include <span>

#include "lib/formats/dtype.h"
#include "lib/passes/deferred_experts.h"
#include "lib/passes/divide_experts.h"
#include "lib/passes/expert_groups.h"
#include "lib/passes/hand_overs.h"
#include "lib/passes/host_links.h"
#include "lib/passes/launched_steps.h"
#include "lib/passes/passes_over_hosts.h"
#include "lib/passes/stream_experts.h"
#include "lib/rules/device_name.h"
#include "lib/support/byte_reader.h"
#include "lib/support/strings.h"
#include "lib/support/text_table.h"
#include "lib/target/host_device.h"

namespace ktx::passes {

// Of lower_to_steps.cc and so on: a pass has no header.
Status lower_to_steps(CompileState& state);
Status insert_transfers(CompileState& state);
Status fold_residuals(CompileState& state);
Status quantize_activations(CompileState& state);
Status plan_memory(CompileState& state);

namespace {

constexpr uint64_t kMiB = 1u << 20;

uint64_t times(uint64_t a, uint64_t b) {
  return checked_mul(a, b).value_or(UINT64_MAX / 4);
}

uint64_t param_bytes(const ir::Param& param, bool dense) {
  const auto rows = times(static_cast<uint64_t>(param.rows), static_cast<uint64_t>(param.matrices));
  // Dense products read 16-bit weights; vectors and floats stay as they are.
  const bool widened = dense && param.rows > 1 && param.dtype != DType::F32;
  const auto row = widened ? param.cols * 2 : row_bytes(param.dtype, param.cols).value_or(0);
  return times(rows, static_cast<uint64_t>(row));
}

uint64_t bytes_of(const ir::Module& module, bool dense) {
  uint64_t sum = 0;
  for (const ir::Param& param : module.params) sum += param_bytes(param, dense);
  return sum;
}

void describe_device(DeviceUse& use, const CompileState& state) {
  const bool gpu = gpu_number(use.name) >= 0;
  use.reserve_bytes = gpu ? kGpuReserve : kCpuReserve;
  if (!state.check.target_given) return;
  if (!gpu) {
    const target::CpuTarget& cpu = cpu_of(state.target, use.name);
    use.capacity = cpu.memory_bytes;
    use.numa_nodes = std::max(1, static_cast<int>(cpu.numa.size()));
  } else if (const target::GpuTarget* facts = gpu_of(state.target, use.name)) {
    use.capacity = facts->memory_bytes;
  }
}

// Sums by device, in the order of hosts, on each the CPU first.
class Sums {
 public:
  explicit Sums(const CompileState& state) : state_(state) {}
  DeviceUse& at(const std::string& device) {
    const auto order = device_order(state_.target, device);
    auto [found, added] = uses_.try_emplace(order);
    if (added) {
      const int gpu = order.second;
      found->second.name =
          target::device_on(target::host_of(device), gpu < 0 ? "cpu" : fmt::format("cuda:{}", gpu));
      describe_device(found->second, state_);
    }
    return found->second;
  }
  std::vector<DeviceUse> take() {
    std::vector<DeviceUse> all;
    for (auto& [order, use] : uses_) all.push_back(std::move(use));
    return all;
  }

 private:
  const CompileState& state_;
  std::map<std::pair<size_t, int>, DeviceUse> uses_;  // by device_order()
};

void add_weights(const CompileState& state, Sums& sums) {
  // A tensor that two modules share is kept once on each device.
  std::set<std::pair<std::string, std::string>> kept;
  for (const ir::Module& module : state.modules.modules) {
    if (module.params.empty()) continue;
    for (const std::string& device : devices_of(module)) {
      DeviceUse& use = sums.at(device);
      for (const ir::Param& param : module.params) {
        const uint64_t bytes = param_bytes(param, module.decision.op == "dense");
        const std::string tensor = param.sources.empty() ? "" : param.sources[0].tensor;
        const bool whole = param.sources.size() == 1 && param.sources[0].row_count < 0;
        if (whole && !kept.emplace(use.name, tensor).second) continue;
        use.weight_bytes += bytes_on(module, device, bytes);
      }
    }
  }
}

// Two slots for panels of experts and a place for tiles (lib/plan/stream_memory.h).
uint64_t slot_bytes(const ir::Module& experts, plan::StreamSlots slots) {
  const std::string& cpu = experts.decision.device;
  const uint64_t layer = bytes_on(experts, cpu, placed_bytes(experts));
  if (slots == plan::StreamSlots::Layer) return times(3, layer);
  uint64_t largest = 0, down = 0;
  for (const ir::Param& param : experts.params) {
    const uint64_t bytes = bytes_on(experts, cpu, param_bytes(param, false));
    largest = std::max(largest, bytes);
    if (param.name == "down") down = bytes;
  }
  const uint64_t tiles = std::max(down, layer - down);  // of gate and up, or of down
  return tiles + (slots == plan::StreamSlots::Matrix ? 2 * largest : largest / 4);
}

void add_slot(const plan::KvSlotRecord& slot, const plan::RunShape& shape,
              const plan::KvBlocks& blocks, DeviceUse& use) {
  const plan::KvTokenBytes token = plan::kv_token_bytes({&slot, 1}, shape.kv_type);
  use.kv_token.whole += token.whole;
  use.kv_token.window += token.window;
  use.kv_bytes += token.times(blocks).value_or(UINT64_MAX / 4);
}

// Keys and values of a layer are stored on each device where another layer reads them.
void add_copied_slots(const CompileState& state, std::span<const plan::KvSlotRecord> slots,
                      const std::map<int32_t, std::string>& attention_device,
                      const plan::KvBlocks& blocks, Sums& sums) {
  std::set<std::pair<int32_t, std::string>> copied;
  for (const ir::Module& module : state.modules.modules) {
    const auto* a = std::get_if<ir::AttentionInfo>(&module.info);
    const auto owner = a ? attention_device.find(a->keys_of_layer) : attention_device.end();
    const std::string& device = module.decision.device;
    if (owner == attention_device.end() || owner->second == device) continue;
    if (!copied.emplace(a->keys_of_layer, device).second) continue;
    for (const plan::KvSlotRecord& slot : slots) {
      if (slot.layer == a->keys_of_layer) {
        add_slot(slot, state.check.shape, blocks, sums.at(device));
      }
    }
  }
}

// Of experts that are divided over hosts: a row for each pair of token and expert, which each of
// them has.
uint64_t bytes_of_pair_rows(const CompileState& state) {
  int64_t rows = 0;
  for (const ir::Module& module : state.modules.modules) {
    const auto* info = std::get_if<ir::ExpertsInfo>(&module.info);
    if (info && cpu_groups(module) > 1) rows = std::max<int64_t>(rows, info->top_k);
  }
  const auto width = static_cast<uint64_t>(state.modules.facts.hidden) * sizeof(float);
  return times(times(static_cast<uint64_t>(rows), width),
               static_cast<uint64_t>(state.check.shape.step_tokens));
}

void add_streams(const CompileState& state, const std::map<int32_t, std::string>& attention_device,
                 plan::StreamSlots slots, Sums& sums) {
  for (const ir::Module& module : state.modules.modules) {
    if (!can_be_streamed(state, module) || !target::is_cpu(module.decision.device)) continue;
    const auto device = attention_device.find(module.layer);
    if (device == attention_device.end() || gpu_number(device->second) < 0) continue;
    if (!target::on_same_host(device->second, module.decision.device)) continue;
    DeviceUse& use = sums.at(device->second);
    use.stream_bytes = std::max(use.stream_bytes, slot_bytes(module, slots));
    use.stream_slots = slots;
  }
}

// Reading the cache of a full context, once a token.
double cache_seconds(const Estimate& estimate, const target::Target& target) {
  const auto ctx = static_cast<double>(estimate.shape.ctx);
  const double seen = std::min(ctx, static_cast<double>(estimate.window));
  double seconds = 0;
  for (const DeviceUse& use : estimate.devices) {
    const double bytes = static_cast<double>(use.kv_token.whole) * ctx +
                         static_cast<double>(use.kv_token.window) * seen;
    const double rate = rates_of(target, use.name).read;
    if (rate > 0) seconds += bytes / rate;
  }
  return seconds;
}

void find_max_ctx(Estimate& estimate, int64_t model_ctx) {
  int64_t most = INT64_MAX;
  bool known = false;
  plan::RunShape longest = estimate.shape;
  longest.ctx = int64_t{1} << 32;
  const auto of_longest = plan::kv_blocks(estimate.window, longest);
  const uint64_t window_blocks = of_longest ? of_longest->window : 0;
  for (const DeviceUse& use : estimate.devices) {
    if (use.capacity == 0 || use.kv_token.whole == 0) continue;
    known = true;
    // Of a longest context: the windows of a shorter one may take less.
    const uint64_t windows = use.kv_token.times({0, window_blocks}).value_or(UINT64_MAX / 4);
    const uint64_t taken = use.total() - use.kv_bytes + windows;
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
    if (use.capacity > 0 && use.total() - use.kv_bytes > use.capacity) most = 0;
  }
  if (known || most == 0) estimate.max_ctx = model_ctx > 0 ? std::min(most, model_ctx) : most;
}

}  // namespace

uint64_t placed_bytes(const ir::Module& module) {
  return bytes_of(module, module.decision.op == "dense");
}
uint64_t source_bytes(const ir::Module& module) {
  return bytes_of(module, false);
}

namespace {

// The steps of the model with routed experts on one device and all else on another.
Result<steps::StepGraph> planned_steps(const CompileState& state, const std::string& experts,
                                       const std::string& others) {
  DiagSink unheard;
  CompileState lowered;
  lowered.modules = state.modules;
  lowered.target = state.target;
  lowered.diags = &unheard;
  lowered.fact = Fact::Placed;
  for (ir::Module& module : lowered.modules.modules) {
    module.decision = {};
    module.decision.device = module.role == ir::Role::Experts ? experts : others;
  }
  KTX_TRY(lower_to_steps(lowered));
  KTX_TRY(insert_transfers(lowered));
  KTX_TRY(fold_residuals(lowered));
  KTX_TRY(quantize_activations(lowered));
  KTX_TRY(plan_memory(lowered));
  return std::move(lowered.steps);
}

// The formulas of the buffers on a device.
std::vector<plan::BufferRecord> buffers_on(const steps::StepGraph& graph, std::string_view device) {
  const std::vector<std::string> devices = steps::value_devices(graph);
  std::vector<bool> here(graph.buffers.size());
  for (size_t i = 0; i < graph.values.size(); ++i) {
    const int32_t buffer = graph.values[i].buffer;
    if (buffer >= 0 && devices[i] == device) here[static_cast<size_t>(buffer)] = true;
  }
  std::vector<plan::BufferRecord> buffers;
  for (size_t i = 0; i < graph.buffers.size(); ++i) {
    const steps::Buffer& buffer = graph.buffers[i];
    if (!here[i]) continue;
    buffers.push_back({static_cast<uint64_t>(buffer.fixed_bytes),
                       static_cast<uint64_t>(buffer.bytes_per_token),
                       static_cast<uint64_t>(buffer.bytes_per_output)});
  }
  return buffers;
}

}  // namespace

Result<Estimator> Estimator::make(const CompileState& state) {
  // The formulas hardly depend on the placement: take them from the steps of the same model on one
  // device, and with its experts on the CPU beside a GPU.
  const steps::StepGraph alone = KTX_TRY(planned_steps(state, "cpu", "cpu"));
  Estimator estimator;
  estimator.all_ = buffers_on(alone, "cpu");
  for (const steps::KvSlot& slot : alone.kv_slots) {
    estimator.kv_slots_.push_back(
        {slot.layer, slot.kv_heads, slot.key_dim, slot.value_dim, 0, slot.window});
  }
  for (const steps::Step& step : alone.steps) {
    if (state_of(step.attrs) < 0) continue;
    estimator.states_.push_back({state_of(step.attrs), step.layer, state_floats_of(step.attrs)});
  }
  const bool has_experts = std::ranges::any_of(
      state.modules.modules, [](const auto& module) { return module.role == ir::Role::Experts; });
  if (!has_experts) return estimator;
  const steps::StepGraph apart = KTX_TRY(planned_steps(state, "cpu", "cuda:0"));
  estimator.without_experts_ = buffers_on(apart, "cuda:0");
  estimator.of_experts_ = buffers_on(apart, "cpu");
  return estimator;
}

Result<uint64_t> Estimator::scratch(const std::vector<plan::BufferRecord>& buffers,
                                    const plan::RunShape& shape) {
  return KTX_TRY(plan::lay_out_arena(buffers, shape.step_tokens, shape.step_outputs)).total_bytes;
}

Result<uint64_t> Estimator::scratch_of_experts(const plan::RunShape& shape) const {
  if (without_experts_.empty()) return uint64_t{0};
  const uint64_t with = KTX_TRY(scratch(all_, shape));
  return with - std::min(with, KTX_TRY(scratch(without_experts_, shape)));
}

// For all contexts, or as many as the budget allows.
Result<plan::KvBlocks> Estimator::count_blocks(const CompileState& state,
                                               Estimate& estimate) const {
  estimate.window = plan::widest_window(kv_slots_);
  estimate.kv_budget_bytes = std::max<int64_t>(0, state.check.kv_budget_bytes);
  const plan::KvTokenBytes token = plan::kv_token_bytes(kv_slots_, estimate.shape.kv_type);
  const plan::KvBlocks blocks = KTX_TRY(plan::kv_blocks(
      estimate.window, estimate.shape, token, static_cast<uint64_t>(estimate.kv_budget_bytes)));
  estimate.window_blocks = blocks.window;
  const auto wanted = plan::kv_blocks(estimate.window, estimate.shape);
  if (wanted && blocks.whole < wanted->whole) {
    estimate.budget_tokens = static_cast<int64_t>(blocks.whole) * plan::kKvBlockTokens;
  }
  return blocks;
}

Result<Estimate> Estimator::run(const CompileState& state) const {
  if (state.stream_slots) return run(state, *state.stream_slots);
  Estimate estimate;
  for (const plan::StreamSlots slots : plan::kStreamSlots) {
    estimate = KTX_TRY(run(state, slots));
    // Smaller slots only where they make a GPU large enough.
    const bool too_small = std::ranges::any_of(estimate.devices, [](const DeviceUse& use) {
      return use.stream_bytes > 0 && use.too_small();
    });
    if (!too_small) break;
  }
  return estimate;
}

Result<Estimate> Estimator::run(const CompileState& state, plan::StreamSlots slots) const {
  Estimate estimate;
  estimate.shape = state.check.shape;
  plan::StateLayout all_states;
  for (const State& state : states_) all_states.add(state.number, state.floats);
  estimate.shape.state_bytes = all_states.bytes();
  const plan::RunShape& shape = estimate.shape;
  Sums sums(state);
  add_weights(state, sums);
  std::map<int32_t, std::string> attention_device;
  for (const ir::Module& module : state.modules.modules) {
    if (ir::kind_of(module.role) == ir::Kind::Attention) {
      attention_device[module.layer] = module.decision.device;
    }
  }
  const plan::KvBlocks blocks = KTX_TRY(count_blocks(state, estimate));
  for (const plan::KvSlotRecord& slot : kv_slots_) {
    add_slot(slot, shape, blocks, sums.at(attention_device[slot.layer]));
  }
  add_copied_slots(state, kv_slots_, attention_device, blocks, sums);
  estimate.state_slots = blocks.states;
  std::map<std::string, plan::StateLayout> states;
  for (const State& state : states_) {
    states[attention_device[state.layer]].add(state.number, state.floats);
  }
  for (const auto& [device, layout] : states) {
    sums.at(device).state_bytes += times(layout.bytes(), blocks.states);
  }
  const bool streams =
      state.prefer.stream_tokens > 0 && shape.step_tokens >= state.prefer.stream_tokens;
  if (streams) add_streams(state, attention_device, slots, sums);
  estimate.devices = sums.take();
  std::set<std::string> with_experts;
  for (const ir::Module& module : state.modules.modules) {
    if (module.role != ir::Role::Experts) continue;
    for (const std::string& device : devices_of(module)) with_experts.insert(device);
  }
  const uint64_t pair_rows = bytes_of_pair_rows(state);
  for (DeviceUse& use : estimate.devices) {
    const bool all = target::is_cpu(use.name) || with_experts.contains(use.name);
    use.scratch_bytes =
        KTX_TRY(scratch(all || without_experts_.empty() ? all_ : without_experts_, shape));
    if (target::is_cpu(use.name)) use.scratch_bytes += pair_rows;
    if (use.stream_bytes > 0) use.stream_bytes += KTX_TRY(scratch(of_experts_, shape));
  }
  find_max_ctx(estimate, state.modules.facts.context_length);
  return estimate;
}

Result<Estimate> Estimator::predict(const CompileState& state) const {
  Estimate estimate = KTX_TRY(run(state));
  const HandOvers hand_overs = KTX_TRY(find_hand_overs(state));
  estimate.crossings = hand_overs.count();
  estimate.gpu_expert_use = gpu_expert_use(state.modules);
  estimate.deferral = deferral_text(state.modules);
  estimate.division = division_text(state.modules);
  estimate.transferred_values = hand_overs.values;
  const Result<steps::StepGraph> launched = launched_steps(state);
  if (!launched) return estimate;  // the findings say why
  auto slots = plan::StreamSlots::Layer;
  for (const DeviceUse& use : estimate.devices) slots = std::max(slots, use.stream_slots);
  estimate.passes_in_flight = passes_in_flight(*launched);
  estimate.chunks_in_flight = chunks_in_flight(*launched);
  const int64_t chunk = estimate.shape.step_tokens;
  estimate.token = predict_pass(*launched, state.target, {});
  estimate.cache_seconds = cache_seconds(estimate, state.target);
  estimate.chunk =
      predict_pass(*launched, state.target,
                   {.tokens = chunk, .slots = slots, .joint = state.prefer.joint_tokens});
  estimate.short_chunk = predict_pass(*launched, state.target,
                                      {.tokens = std::min(kShortPrompt, chunk),
                                       .slots = slots,
                                       .joint = state.prefer.joint_tokens});
  estimate.stream_trials = state.stream_trials;
  return estimate;
}

std::string estimate_table(const Estimate& estimate) {
  uint64_t largest = 0;
  for (const DeviceUse& use : estimate.devices) {
    largest = std::max({largest, use.total(), use.capacity});
  }
  const ByteUnit unit(largest);
  TextTable table({{"device", TextTable::Left},
                   {"weights"},
                   {"kv"},
                   {"scratch"},
                   {"streaming"},
                   {"reserve"},
                   {"total"},
                   {"memory"},
                   {"left"}});
  for (const DeviceUse& use : estimate.devices) {
    const std::string left = use.capacity == 0 ? "unknown"
                             : use.too_small() ? "-" + unit.text(use.total() - use.capacity)
                                               : unit.text(use.capacity - use.total());
    table.add({use.name, unit.text(use.weight_bytes), unit.text(use.kv_bytes + use.state_bytes),
               unit.text(use.scratch_bytes), unit.text(use.stream_bytes),
               unit.text(use.reserve_bytes), unit.text(use.total()),
               use.capacity ? unit.text(use.capacity) : "unknown", left});
  }
  return table.plain();
}

std::string print_estimate(const Estimate& estimate) {
  return estimate_table(estimate) + memory_notes(estimate) + speed_notes(estimate);
}

std::string trials_table(const std::vector<StreamTrial>& trials) {
  TextTable table({{"", TextTable::Left},
                   {"experts copied at a time", TextTable::Left},
                   {"a pass"},
                   {"on GPUs"},
                   {"decode"},
                   {"prompts of 512"},
                   {"of 4096"}});
  const auto rate = [](int64_t tokens, double seconds) {
    return fmt::format("{:.{}f}", static_cast<double>(tokens) / seconds, tokens > 1 ? 0 : 1);
  };
  if (trials.size() < 2) return "";
  for (const StreamTrial& trial : trials) {
    if (trial.time.token == 0) return "";
    table.add({trial.chosen ? "*" : "",
               std::string(trial.way.slots ? plan::name(*trial.way.slots) : "none"),
               fmt::format("{}", trial.way.chunk),
               fmt::format("{:.1f} %", 100 * trial.gpu_expert_use), rate(1, trial.time.token),
               rate(kShortPrompt, trial.time.short_prompt),
               rate(kLongPrompt, trial.time.long_prompt)});
  }
  return "tried, in tokens/s; * takes the least for an answer of 512 tokens, a prompt of 4096 and one "
         "of 512:\n" +
         table.plain("  ");
}

namespace {

// The terms of the time of a pass, a line each.
std::string speed_terms(const PassTime& time) {
  uint64_t largest = 0;
  for (const DeviceTime& d : time.devices) {
    largest = std::max({largest, d.read_bytes, d.copied_bytes});
  }
  const ByteUnit unit(largest);
  TextTable table({{"", TextTable::Left}, {""}, {"", TextTable::Left}});
  const auto ms = [](double seconds) { return fmt::format("{:.2f} ms", seconds * 1e3); };
  for (const DeviceTime& d : time.devices) {
    std::string how = fmt::format("{} at {:.4g} GB/s ({})", unit.text(d.read_bytes),
                                  d.rates.read / 1e9, d.rates.read_measured ? "measured" : "rated");
    if (d.copied_bytes > 0) {
      how += fmt::format(", {} of experts over PCIe at {:.3g} GB/s", unit.text(d.copied_bytes),
                         d.rates.pcie / 1e9);
    }
    if (d.launches > 0) how += fmt::format(", {} kernels", d.launches);
    table.add({d.device, ms(d.seconds), how});
  }
  if (time.hand_overs > 0) {
    table.add({"", ms(time.hand_over_seconds),
               fmt::format("{} hand-over{}", time.hand_overs, time.hand_overs == 1 ? "" : "s")});
  }
  if (time.messages > 0) {
    table.add({"", ms(time.network_seconds),
               fmt::format("{} message{} between hosts, {}{}", time.messages,
                           time.messages == 1 ? "" : "s", human_bytes(time.network_bytes),
                           time.network_assumed ? " (10 Gbit/s and 30 us where not stated)" : "")});
  }
  if (time.beside_seconds > 0) {
    table.add({"", "-" + ms(time.beside_seconds), "both at once"});
  }
  return table.plain("    ");
}

// Between what speeds decode may lie where the rate of a CPU that it waits for is its maker's.
std::string rated_spread(const Estimate& estimate) {
  const PassTime& token = estimate.token;
  double slowest = token.seconds, fastest = token.seconds;
  for (const DeviceTime& d : token.devices) {
    if (!target::is_cpu(d.device) || d.rates.read_measured || d.read_bytes == 0) continue;
    const auto use = std::ranges::find(estimate.devices, d.device, &DeviceUse::name);
    const bool numa = use != estimate.devices.end() && use->numa_nodes > 1;
    const double reading = static_cast<double>(d.read_bytes) / d.rates.read * kCpuReadShare;
    slowest +=
        reading / (numa ? kLeastNumaReadShare : kLeastCpuReadShare) - reading / kCpuReadShare;
    fastest += reading / kMostCpuReadShare - reading / kCpuReadShare;
  }
  if (slowest < 1.02 * token.seconds) return "";
  return fmt::format(
      "    the CPU's rate is {:g} of what its maker states; such machines differ, so {:.1f} to {:.1f} "
      "tokens/s:\n    measure yours with ktx-run probe\n",
      kCpuReadShare, 1 / slowest, 1 / fastest);
}

// Of several passes on their way over hosts.
std::string flight_text(const Estimate& estimate) {
  if (estimate.passes_in_flight < 2) return "";
  const auto rate = [](const PassTime& pass, int64_t in_flight) {
    return static_cast<double>(pass.tokens) / seconds_of_each(pass, in_flight);
  };
  std::string out =
      fmt::format("{} passes in flight: {:.1f} tokens/s of as many requests in decode",
                  estimate.passes_in_flight, rate(estimate.token, estimate.passes_in_flight));
  if (estimate.chunk.known && estimate.chunks_in_flight > 1) {
    out += fmt::format(", {:.0f} of a long prompt in chunks",
                       rate(estimate.chunk, estimate.chunks_in_flight));
  }
  return out + "\n";
}

}  // namespace

std::string memory_notes(const Estimate& estimate) {
  std::string out;
  for (const DeviceUse& use : estimate.devices) {
    if (use.numa_nodes < 2 || use.capacity == 0) continue;
    const auto nodes = static_cast<uint64_t>(use.numa_nodes);
    out += fmt::format(
        "{}: {} NUMA nodes, {} of {} in each (weights are kept once, spread evenly)\n", use.name,
        use.numa_nodes, human_bytes(use.total() / nodes), human_bytes(use.capacity / nodes));
  }
  out +=
      fmt::format("for {} tokens of context, {} at once, {} keys and values, steps of {} tokens\n",
                  estimate.shape.ctx, estimate.shape.max_batch, plan::name(estimate.shape.kv_type),
                  estimate.shape.step_tokens);
  if (estimate.window > 0) {
    out +=
        fmt::format("layers with a window of {} tokens or fewer keep {} in all, of any context\n",
                    estimate.window, estimate.window_blocks * plan::kKvBlockTokens);
  }
  if (estimate.state_slots > 0) {
    const auto sequences = static_cast<uint64_t>(estimate.shape.max_batch);
    out += fmt::format(
        "the states of a text in delta nets take {}, whatever its length: {} for each sequence and {} "
        "snapshots are in kv\n",
        human_bytes(estimate.shape.state_bytes), plan::kRunningStates,
        estimate.state_slots - plan::kRunningStates * sequences);
  }
  if (estimate.kv_budget_bytes > 0) {
    const std::string held = estimate.budget_tokens < 0
                                 ? "all of that"
                                 : fmt::format("{} tokens in all", estimate.budget_tokens);
    out += fmt::format("the KV budget of {} holds {}\n",
                       human_bytes(static_cast<uint64_t>(estimate.kv_budget_bytes)), held);
  }
  for (const DeviceUse& use : estimate.devices) {
    if (use.stream_bytes == 0) continue;
    out += fmt::format("{}: experts of the CPU are streamed, {} at a time\n", use.name,
                       plan::name(use.stream_slots));
  }
  if (estimate.max_ctx >= 0) {
    out += fmt::format("largest context that fits: {} tokens per sequence\n", estimate.max_ctx);
  } else {
    out += "largest context that fits: unknown without the memory of a --target\n";
  }
  uint64_t weights = 0;
  for (const DeviceUse& use : estimate.devices) weights += use.weight_bytes;
  out += fmt::format(
      "start: the plan is mapped; {} of weights are read once, {:.1f} s at {:g} GB/s "
      "of disk\n",
      human_bytes(weights), static_cast<double>(weights) / (kDiskGbps * 1e9), kDiskGbps);
  if (estimate.crossings > 0) {
    out +=
        fmt::format("hand-overs between devices: {} a token, of {} value{}\n", estimate.crossings,
                    estimate.transferred_values, estimate.transferred_values == 1 ? "" : "s");
  }
  if (estimate.gpu_expert_use > 0 && estimate.gpu_expert_use < 1) {
    out += fmt::format("routed experts: {:.1f} % of the activations by GPUs, {:.1f} % by the CPU\n",
                       100 * estimate.gpu_expert_use, 100 * (1 - estimate.gpu_expert_use));
  }
  if (!estimate.division.empty()) out += fmt::format("divided: {}\n", estimate.division);
  if (!estimate.deferral.empty()) out += fmt::format("deferred: {}\n", estimate.deferral);
  return out;
}

std::string speed_notes(const Estimate& estimate) {
  if (!estimate.token.known) return "speed: unknown without the bandwidth of a --target\n";
  const double token = estimate.token.seconds;
  std::string out =
      fmt::format("decode, one sequence: {:.1f} tokens/s at first, {:.1f} with a full context\n",
                  1 / token, 1 / (token + estimate.cache_seconds));
  out += speed_terms(estimate.token) + rated_spread(estimate);
  if (estimate.chunk.known) {
    out += fmt::format("long prompts: {:.0f} tokens/s, a pass of {}\n",
                       static_cast<double>(estimate.chunk.tokens) / estimate.chunk.seconds,
                       estimate.chunk.tokens);
    out += speed_terms(estimate.chunk);
  }
  if (estimate.short_chunk.known && estimate.short_chunk.tokens < estimate.chunk.tokens) {
    out += fmt::format(
        "prompts of {}: {:.0f} tokens/s\n", estimate.short_chunk.tokens,
        static_cast<double>(estimate.short_chunk.tokens) / estimate.short_chunk.seconds);
  }
  out += flight_text(estimate);
  out += trials_table(estimate.stream_trials);
  return out;
}

}  // namespace ktx::passes

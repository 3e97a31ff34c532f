#include "lib/passes/cost/estimate_text.h"

#include <fmt/format.h>

#include <algorithm>

#include "lib/passes/cost/forwards_over_hosts.h"
#include "lib/support/strings.h"
#include "lib/support/text_table.h"
#include "lib/target/host_device.h"

namespace ktx::passes {

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
std::string speed_terms(const ForwardTime& time) {
  uint64_t largest = 0;
  for (const DeviceTime& d : time.devices) {
    largest = std::max({largest, d.read_bytes, d.copied_bytes, time.disk_bytes});
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
  if (time.disk_bytes > 0) {
    table.add({"disk", ms(time.disk_seconds),
               fmt::format("{} of experts at {:g} GB/s", unit.text(time.disk_bytes),
                           static_cast<double>(time.disk_bytes) / time.disk_seconds / 1e9)});
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
  const ForwardTime& token = estimate.token;
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

// The rates of several passes in flight over hosts.
std::string flight_text(const Estimate& estimate) {
  if (estimate.forwards_in_flight < 2) return "";
  const auto rate = [](const ForwardTime& pass, int64_t in_flight) {
    return static_cast<double>(pass.tokens) / seconds_of_each(pass, in_flight);
  };
  std::string out =
      fmt::format("{} passes in flight: {:.1f} tokens/s of as many requests in decode",
                  estimate.forwards_in_flight, rate(estimate.token, estimate.forwards_in_flight));
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
  for (const program::SequenceKind kind : program::kPassingKinds) {
    if (estimate.widths[kind] == 0) continue;
    out +=
        fmt::format("layers with a window of {} tokens or fewer keep {} in all, of any context\n",
                    estimate.widths[kind], estimate.blocks[kind] * plan::kKvBlockTokens);
  }
  if (estimate.blocks.states > 0) {
    const auto sequences = static_cast<uint64_t>(estimate.shape.max_batch);
    out += fmt::format(
        "the states of a text take {}, whatever its length: {} for each sequence and {} "
        "snapshots are in kv\n",
        human_bytes(estimate.shape.state_bytes), plan::kRunningStates,
        estimate.blocks.states - plan::kRunningStates * sequences);
  }
  if (estimate.kv_budget_bytes > 0) {
    const std::string held = estimate.budget_tokens < 0
                                 ? "all of that"
                                 : fmt::format("{} tokens in all", estimate.budget_tokens);
    out += fmt::format("the KV budget of {} holds {}\n",
                       human_bytes(static_cast<uint64_t>(estimate.kv_budget_bytes)), held);
  }
  for (const DeviceUse& use : estimate.devices) {
    if (use.table_bytes == 0) continue;
    out += fmt::format(
        "{}: a table of n-grams, {}, is mapped beside that: a token reads some of its rows\n",
        use.name, human_bytes(use.table_bytes));
  }
  for (const DeviceUse& use : estimate.devices) {
    if (use.stream_bytes == 0) continue;
    out += fmt::format("{}: experts of the CPU are streamed, {} at a time\n", use.name,
                       plan::name(use.stream_slots));
  }
  if (estimate.max_ctx >= 0) {
    out +=
        fmt::format("largest context that fits: {} tokens per sequence{}\n", estimate.max_ctx,
                    estimate.max_ctx_on_disk ? ", with all experts but one layer's on disk" : "");
  } else {
    out += "largest context that fits: unknown without the memory of a --target\n";
  }
  uint64_t weights = 0;
  for (const DeviceUse& use : estimate.devices) weights += use.weight_bytes;
  out += fmt::format(
      "start: the plan is mapped; {} of weights are read once, {:.1f} s at {:g} GB/s "
      "of disk\n",
      human_bytes(weights), static_cast<double>(weights) / (estimate.disk_gbps * 1e9),
      estimate.disk_gbps);
  if (estimate.crossings > 0) {
    out +=
        fmt::format("hand-overs between devices: {} a token, of {} value{}\n", estimate.crossings,
                    estimate.transferred_values, estimate.transferred_values == 1 ? "" : "s");
  }
  if (estimate.gpu_expert_use > 0 && estimate.gpu_expert_use < 1) {
    out += fmt::format("routed experts: {:.1f} % of the activations by GPUs, {:.1f} % by the CPU\n",
                       100 * estimate.gpu_expert_use, 100 * (1 - estimate.gpu_expert_use));
  }
  out += disk_notes(estimate);
  if (!estimate.division.empty()) out += fmt::format("divided: {}\n", estimate.division);
  if (!estimate.slots.empty()) out += fmt::format("slots: {}\n", estimate.slots);
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
  out += team_table(estimate.team_trials);
  out += trials_table(estimate.stream_trials);
  return out;
}

std::string disk_notes(const Estimate& estimate) {
  const ExpertsOnDisk& disk = estimate.disk;
  if (disk.experts == 0) return "";
  if (disk.slots == 0) {
    return fmt::format(
        "routed experts: the CPU has no room for one layer's, {}; all are mapped, and read page by "
        "page\n",
        human_bytes(disk.least_bytes));
  }
  return fmt::format(
      "routed experts: {} of {} in main memory ({}), {:.1f} % of the chosen ones; {} a token from "
      "disk\n",
      disk.slots, disk.experts, human_bytes(static_cast<uint64_t>(disk.slots) * disk.slot_bytes),
      100 * disk.hit_rate, human_bytes(static_cast<uint64_t>(disk.token_bytes)));
}

}  // namespace ktx::passes

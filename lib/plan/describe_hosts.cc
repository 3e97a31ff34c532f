#include "lib/plan/describe_hosts.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "lib/plan/plan_hosts.h"
#include "lib/support/strings.h"
#include "lib/support/text_table.h"
#include "lib/target/host_device.h"

namespace ktx::plan {

Result<std::vector<HostUse>> host_uses(const PlanView& plan, const RunShape& shape) {
  std::vector<HostUse> hosts;
  for (const PlanTarget::Host& host : plan.target.hosts) {
    HostUse& use = hosts.emplace_back();
    use.name = host.name;
    use.capacity = static_cast<uint64_t>(host.memory_bytes);
  }
  if (hosts.empty()) return hosts;
  std::vector<std::set<int32_t>> layers(hosts.size());
  for (const program::Step& step : plan.program->steps) {
    if (step.layer < 0 || step.op == StepOp::Transfer) continue;
    layers[host_of(plan, step.device)].insert(step.layer);
  }
  for (size_t i = 0; i < hosts.size(); ++i) {
    if (layers[i].empty()) continue;
    hosts[i].first_layer = *layers[i].begin();
    hosts[i].last_layer = *layers[i].rbegin();
    hosts[i].layers = static_cast<int32_t>(layers[i].size());
  }
  for (DeviceMemory& device : KTX_TRY(memory_by_device(plan, shape))) {
    const size_t host = host_of(plan, device.name);
    const bool cpu = target::is_cpu(device.name);
    device.name = std::string(target::name_on_host(device.name));
    if (cpu) {
      hosts[host].cpu = std::move(device);
    } else {
      hosts[host].gpus.push_back(std::move(device));
    }
  }
  return hosts;
}

std::string host_lines(const PlanView& plan, const RunShape& shape) {
  const auto hosts = host_uses(plan, shape);
  if (!hosts) return "\nhosts\n  " + hosts.error().message + "\n";
  if (hosts->empty()) return "";
  uint64_t largest = 0;
  for (const HostUse& host : *hosts) {
    largest = std::max({largest, host.cpu.total(), host.capacity});
    for (const DeviceMemory& gpu : host.gpus) largest = std::max(largest, gpu.total());
  }
  const ByteUnit unit(largest);
  TextTable table({{"rank"},
                   {"host", TextTable::Left},
                   {"layers", TextTable::Left},
                   {"weights"},
                   {"kv cache"},
                   {"activations"},
                   {"memory"}});
  for (size_t rank = 0; rank < hosts->size(); ++rank) {
    const HostUse& host = (*hosts)[rank];
    const bool run = host.last_layer - host.first_layer + 1 == host.layers;
    const std::string layers =
        host.layers == 0 ? "none"
                         : fmt::format("{}..{}{}", host.first_layer, host.last_layer,
                                       run ? "" : fmt::format(" ({} of them)", host.layers));
    table.add({fmt::format("{}", rank), printable(host.name), layers,
               unit.text(host.cpu.weight_bytes),
               unit.text(host.cpu.kv_bytes + host.cpu.state_bytes), unit.text(host.cpu.arena_bytes),
               host.capacity > 0 ? unit.text(host.capacity) : "unknown"});
    for (const DeviceMemory& gpu : host.gpus) {
      const std::string stored = rank == 0 ? gpu.name : target::device_on(host.name, gpu.name);
      const auto known = std::ranges::find(plan.target.devices, stored, &PlanTarget::Device::name);
      const bool told = known != plan.target.devices.end() && known->memory_bytes > 0;
      table.add({"", printable(target::device_on(host.name, gpu.name)), "",
                 unit.text(gpu.weight_bytes), unit.text(gpu.kv_bytes + gpu.state_bytes),
                 unit.text(gpu.arena_bytes + gpu.stream_bytes),
                 told ? unit.text(static_cast<uint64_t>(known->memory_bytes)) : "unknown"});
    }
  }
  std::string part;
  if (plan.part_of && *plan.part_of < hosts->size()) {
    part = fmt::format("  this file has the weights of {} alone\n",
                       printable((*hosts)[*plan.part_of].name));
  }
  return fmt::format("\nhosts, for {} tokens, {} at once\n{}{}", shape.ctx, shape.max_batch,
                     table.plain("  "), part);
}

}  // namespace ktx::plan

#include "lib/plan/plan_hosts.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <string>

#include "lib/support/strings.h"
#include "lib/target/host_device.h"

namespace ktx::plan {
namespace {

using Hosts = std::vector<PlanTarget::Host>;

size_t number_of(const Hosts& hosts, std::string_view name) {
  const auto found = std::ranges::find(hosts, name, &PlanTarget::Host::name);
  return static_cast<size_t>(found - hosts.begin());
}

Status verify_list(const PlanView& plan) {
  const Hosts& hosts = plan.target.hosts;
  if (hosts.size() == 1 || hosts.size() > target::kMaxHosts) {
    return Error{
        fmt::format("{} hosts, expected 2 to {}, or none", hosts.size(), target::kMaxHosts)};
  }
  for (size_t i = 0; i < hosts.size(); ++i) {
    if (!target::is_host_name(hosts[i].name)) {
      return Error{fmt::format("host {} has the name '{}'", i, printable(hosts[i].name))};
    }
    if (number_of(hosts, hosts[i].name) != i) {
      return Error{fmt::format("two hosts have the name '{}'", hosts[i].name)};
    }
    if (cpu_string(plan, i) == kNone) {
      return Error{fmt::format("no device is the CPU of host '{}'", hosts[i].name)};
    }
  }
  return {};
}

}  // namespace

uint32_t cpu_string(const PlanView& plan, size_t host) {
  const std::string name =
      host == 0 ? "cpu" : target::device_on(plan.target.hosts[host].name, "cpu");
  for (uint32_t i = 0; i < plan.string_entries.size(); ++i) {
    if (plan.string(i) == name) return i;
  }
  return kNone;
}

std::vector<std::string> host_names(const PlanView& plan) {
  std::vector<std::string> names;
  for (const PlanTarget::Host& host : plan.target.hosts) names.push_back(host.name);
  return names;
}

size_t host_of(const PlanView& plan, std::string_view device) {
  const std::string_view name = target::host_of(device);
  if (name.empty()) return plan.host;
  const size_t number = number_of(plan.target.hosts, name);
  return number == plan.host ? 0 : number;
}

size_t host_of(const PlanView& plan, const SegmentRecord& segment) {
  if (segment.kind != static_cast<uint32_t>(SegmentKind::Weights)) return 0;
  return host_of(plan, plan.string(segment.device));
}

Status verify_hosts(const PlanView& plan) {
  if (has_hosts(plan)) KTX_TRY(verify_list(plan));
  std::set<uint32_t> devices;
  for (const StepRecord& step : plan.steps) devices.insert(step.device);
  for (const SegmentRecord& segment : plan.segments) devices.insert(segment.device);
  for (const KvSlotRecord& slot : plan.kv_slots) devices.insert(slot.device);
  for (const uint32_t number : devices) {
    if (number >= plan.string_entries.size()) continue;  // verify_steps() says which
    const std::string_view device = plan.string(number), host = target::host_of(device);
    const size_t known = number_of(plan.target.hosts, host);
    const bool others = known > 0 && known < plan.target.hosts.size();
    if (host.empty() || (others && target::is_cpu(device))) continue;
    return Error{fmt::format("device '{}' is of none of the plan's {} hosts", printable(device),
                             plan.target.hosts.size())};
  }
  return {};
}

Status check_part(const PlanView& plan) {
  if (!plan.part_of || *plan.part_of == plan.host) return {};
  const auto named = [&](size_t host) {
    const bool known = host < plan.target.hosts.size();
    return known ? fmt::format("host {} (rank {})", plan.target.hosts[host].name, host)
                 : fmt::format("rank {}", host);
  };
  return Error{
      fmt::format("the file has the weights of {} alone, and is read on {}; each host reads "
                  "its own part",
                  named(*plan.part_of), named(plan.host))};
}

bool has_weights(const PlanView& plan, const SegmentRecord& segment) {
  return !plan.part_of || *plan.part_of == host_of(plan, segment);
}

}  // namespace ktx::plan

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
  return device_string(plan, host, "cpu");
}

uint32_t device_string(const PlanView& plan, size_t host, std::string_view name_there) {
  const std::string name =
      target::device_on(host == 0 ? "" : plan.target.hosts[host].name, name_there);
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

namespace {

std::set<uint32_t> devices_of(const PlanView& plan) {
  std::set<uint32_t> devices;
  for (const StepRecord& step : plan.steps) devices.insert(step.device);
  for (const SegmentRecord& segment : plan.segments) devices.insert(segment.device);
  for (const KvSlotRecord& slot : plan.kv_slots) devices.insert(slot.device);
  return devices;
}

}  // namespace

Status verify_hosts(const PlanView& plan) {
  if (has_hosts(plan)) KTX_TRY(verify_list(plan));
  std::set<std::string_view> names;  // on their hosts
  for (const uint32_t number : devices_of(plan)) {
    if (number >= plan.string_entries.size()) continue;  // verify_steps() says which
    const std::string_view device = plan.string(number), host = target::host_of(device);
    const size_t known = number_of(plan.target.hosts, host);
    const bool others = known > 0 && known < plan.target.hosts.size();
    const bool gpu = target::name_on_host(device).starts_with("cuda:");
    if (!host.empty() && (!others || !(gpu || target::is_cpu(device)))) {
      return Error{fmt::format("device '{}' belongs to none of the plan's {} hosts",
                               printable(device), plan.target.hosts.size())};
    }
    if (gpu) names.insert(target::name_on_host(device));
  }
  // Each host reads the plan with its own names (read_as() of plan_reader.cc).
  for (const std::string_view name : names) {
    for (size_t host = 0; host < plan.target.hosts.size(); ++host) {
      if (device_string(plan, host, name) != kNone) continue;
      return Error{fmt::format("the plan has no name of {} on host {}; compile it again",
                               printable(name), plan.target.hosts[host].name)};
    }
  }
  return {};
}

uint32_t name_as_read_on(const PlanView& plan, size_t host, uint32_t device) {
  if (host == 0 || device >= plan.string_entries.size()) return device;
  const std::string_view name = plan.string(device), own = target::name_on_host(name);
  const size_t of = host_of(plan, name);
  const bool exchanged = of == 0 || of == host;
  const uint32_t other = exchanged ? device_string(plan, of == 0 ? host : 0, own) : kNone;
  return other == kNone ? device : other;
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

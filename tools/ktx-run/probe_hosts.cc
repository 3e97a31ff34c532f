#include "tools/ktx-run/probe_hosts.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "lib/runtime/hosts/probe_network.h"
#include "lib/target/host_device.h"

namespace ktx::tools {
namespace {

// As far as it can be that of a host in devices ("b/cpu"), without its domain.
std::string name_of_machine() {
  char text[256] = {};
  if (gethostname(text, sizeof text - 1) != 0) return "";
  const std::string name = text;
  return name.substr(0, name.find('.'));
}

// Machines of one name, or none, have their rank behind it.
std::string own_name(const std::string& name, int rank, std::set<std::string>& taken) {
  std::string own = target::is_host_name(name) ? name : fmt::format("host{}", rank);
  if (taken.contains(own)) own += fmt::format("-{}", rank);
  taken.insert(own);
  return own;
}

}  // namespace

Result<target::Target> probe_hosts(runtime::HostGroup& group, target::Target (*measure)()) {
  KTX_TRY(runtime::ask_hosts(group));
  target::Target all = measure();
  std::set<std::string> taken;
  all.hosts.push_back({own_name(name_of_machine(), 0, taken), all.cpu, 0, 0});
  for (int rank = 1; rank < group.ranks(); ++rank) {
    runtime::ProbedHost host = KTX_TRY(runtime::receive_host(group, rank));
    all.hosts.push_back({own_name(host.name, rank, taken), host.cpu, 0, 0, std::move(host.gpus)});
  }
  std::vector<std::string> names;
  for (const target::HostTarget& host : all.hosts) names.push_back(host.name);
  group.set_names(names);
  // Once all are done with their processors.
  target::HostTarget& first = all.hosts[0];
  for (int rank = 1; rank < group.ranks(); ++rank) {
    const runtime::LinkRate link = KTX_TRY(runtime::measure_link(group, rank));
    target::HostTarget& host = all.hosts[static_cast<size_t>(rank)];
    host.network_gbit = link.gbit / target::kNetworkPayload;
    host.network_latency_us = link.latency_us;
    // The slower host limits a link, so the first host has the best of its links.
    first.network_gbit = std::max(first.network_gbit, host.network_gbit);
    first.network_latency_us = rank == 1
                                   ? host.network_latency_us
                                   : std::min(first.network_latency_us, host.network_latency_us);
  }
  return all;
}

Status follow_probe(runtime::HostGroup& group, target::Target (*measure)()) {
  return runtime::follow_probe(group, [&] {
    const target::Target own = measure();
    return runtime::ProbedHost{name_of_machine(), own.cpu, own.gpus};
  });
}

}  // namespace ktx::tools

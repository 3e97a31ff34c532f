#include "lib/passes/cost/target_devices.h"

#include <algorithm>

namespace ktx::passes {
namespace {

// Defaults for a target that does not state them: common Ethernet, and a message over TCP.
constexpr double kUsualGbit = 10;
constexpr double kUsualLatencySeconds = 30e-6;

}  // namespace

bool has_device(const target::Target& target, const target::DeviceId& device) {
  const bool named = !device.host.empty();
  if (named && host_number(target, device) >= target.hosts.size()) return false;
  return device.is_cpu() || gpu_of(target, device) != nullptr;
}

size_t host_number(const target::Target& target, const target::DeviceId& device) {
  if (device.host.empty()) return 0;
  const auto found = std::ranges::find(target.hosts, device.host, &target::HostTarget::name);
  return static_cast<size_t>(found - target.hosts.begin());
}

const target::CpuTarget& cpu_of(const target::Target& target, const target::DeviceId& device) {
  const size_t host = host_number(target, device);
  return host == 0 || host >= target.hosts.size() ? target.cpu : target.hosts[host].cpu;
}

const std::vector<target::GpuTarget>& gpus_of(const target::Target& target, size_t host) {
  return host == 0 ? target.gpus : target.hosts[host].gpus;
}

std::vector<const target::GpuTarget*> all_gpus(const target::Target& target) {
  std::vector<const target::GpuTarget*> all;
  for (size_t host = 0; host < std::max<size_t>(target.hosts.size(), 1); ++host) {
    for (const target::GpuTarget& gpu : gpus_of(target, host)) all.push_back(&gpu);
  }
  return all;
}

const target::GpuTarget* gpu_of(const target::Target& target, const target::DeviceId& device) {
  const int number = device.gpu();
  const size_t host = host_number(target, device);
  if (number < 0 || (host > 0 && host >= target.hosts.size())) return nullptr;
  const std::vector<target::GpuTarget>& gpus = gpus_of(target, host);
  return number < std::ssize(gpus) ? &gpus[static_cast<size_t>(number)] : nullptr;
}

std::pair<size_t, int> device_order(const target::Target& target, const target::DeviceId& device) {
  return {host_number(target, device), device.gpu()};
}

HostLink link_between(const target::Target& target, const target::DeviceId& from,
                      const target::DeviceId& to) {
  HostLink link{0, 0, false};
  double gbit = 0, latency = 0;
  for (const target::DeviceId* device : {&from, &to}) {
    const size_t number = host_number(target, *device);
    if (number >= target.hosts.size()) continue;
    const target::HostTarget& host = target.hosts[number];
    if (host.network_gbit > 0)
      gbit = gbit > 0 ? std::min(gbit, host.network_gbit) : host.network_gbit;
    latency = std::max(latency, host.network_latency_us * 1e-6);
  }
  link.assumed = gbit <= 0 || latency <= 0;
  link.latency_seconds = latency > 0 ? latency : kUsualLatencySeconds;
  link.bytes_per_second = (gbit > 0 ? gbit : kUsualGbit) * 1e9 / 8 * target::kNetworkPayload;
  return link;
}

}  // namespace ktx::passes

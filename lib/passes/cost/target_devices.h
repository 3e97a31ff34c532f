// The devices and hosts of a target as placements and predictions need them.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "lib/target/device_id.h"
#include "lib/target/target.h"

namespace ktx::passes {

inline bool has_hosts(const target::Target& target) {
  return target.hosts.size() > 1;
}

bool has_device(const target::Target& target, const target::DeviceId& device);

// The index of a device's host among the target's; the number of these where it has no such host.
size_t host_number(const target::Target& target, const target::DeviceId& device);
// For the host of a device; the target has that host.
const target::CpuTarget& cpu_of(const target::Target& target, const target::DeviceId& device);
// For a host by number; for a single machine, those of the target.
const std::vector<target::GpuTarget>& gpus_of(const target::Target& target, size_t host);
// The GPUs of all hosts.
std::vector<const target::GpuTarget*> all_gpus(const target::Target& target);
// "b/cuda:1": the second one of host b; null where it is no GPU of the target.
const target::GpuTarget* gpu_of(const target::Target& target, const target::DeviceId& device);

// Devices in the order of hosts, on each the CPU (-1) first, then GPUs by number.
std::pair<size_t, int> device_order(const target::Target& target, const target::DeviceId& device);

// What a message between two hosts takes: a latency, and its bytes at the slower one's rate.
struct HostLink {
  double latency_seconds = 0;
  double bytes_per_second = 0;
  bool assumed = false;  // the target does not say all of it

  double seconds(uint64_t bytes) const {
    return latency_seconds + static_cast<double>(bytes) / bytes_per_second;
  }
};
HostLink link_between(const target::Target& target, const target::DeviceId& from,
                      const target::DeviceId& to);

}  // namespace ktx::passes

// Names of devices where a model runs on several machines (hosts).
//
//   cpu     cuda:1      of the first host, or of the only machine
//   b/cpu   b/cuda:1    of the host `b` of the target file
//
// The first host has no prefix, so a plan for one machine knows of no hosts.
#pragma once

#include <string>
#include <string_view>

namespace ktx::target {

inline constexpr int kMaxHosts = 64;

// "b" of "b/cpu"; "" of a device of the first host.
std::string_view host_of(std::string_view device);
// "cuda:1" of "b/cuda:1" and of "cuda:1": its name on its own host.
std::string_view name_on_host(std::string_view device);
// The reverse of both: "b/cpu" of "b" and "cpu", "cpu" of "" and "cpu".
std::string device_on(std::string_view host, std::string_view name);

bool is_cpu(std::string_view device);                       // of any host
bool on_same_host(std::string_view a, std::string_view b);  // devices
std::string cpu_beside(std::string_view device);            // the CPU of its host
inline bool is_first_host(std::string_view device) {
  return host_of(device).empty();
}

// Letters, digits, '-', '_' and '.', 1 to 63 of them, as in names of machines.
bool is_host_name(std::string_view name);

}  // namespace ktx::target

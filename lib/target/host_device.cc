#include "lib/target/host_device.h"

#include <algorithm>

namespace ktx::target {

std::string_view host_of(std::string_view device) {
  const size_t slash = device.find('/');
  return slash == std::string_view::npos ? std::string_view() : device.substr(0, slash);
}

std::string_view name_on_host(std::string_view device) {
  const size_t slash = device.find('/');
  return slash == std::string_view::npos ? device : device.substr(slash + 1);
}

std::string device_on(std::string_view host, std::string_view name) {
  return host.empty() ? std::string(name) : std::string(host) + "/" + std::string(name);
}

bool is_cpu(std::string_view device) {
  return name_on_host(device) == "cpu";
}

bool on_same_host(std::string_view a, std::string_view b) {
  return host_of(a) == host_of(b);
}

std::string cpu_beside(std::string_view device) {
  return device_on(host_of(device), "cpu");
}

bool is_host_name(std::string_view name) {
  return !name.empty() && name.size() <= 63 && std::ranges::all_of(name, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '_' || c == '.';
  });
}

}  // namespace ktx::target

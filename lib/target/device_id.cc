#include "lib/target/device_id.h"

#include <fmt/format.h>

#include <charconv>

#include "lib/target/host_device.h"

namespace ktx::target {

std::optional<int> parse_gpu_index(std::string_view text) {
  int value = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool whole = error == std::errc() && end == text.data() + text.size();
  return whole && value >= 0 && value <= kMaxGpu ? std::optional(value) : std::nullopt;
}

std::optional<DeviceId> parse_device_id(std::string_view name) {
  using Kind = DeviceId::Kind;
  const bool of_host = name.find('/') != std::string_view::npos;
  if (of_host && !is_host_name(host_of(name))) return std::nullopt;
  DeviceId device{std::string(host_of(name))};
  const std::string_view own = name_on_host(name), type = own.substr(0, own.find(':'));
  if (own == "cpu") return device;
  if (type == "cuda") device.kind = Kind::Cuda;
  if (type == "xpu" && !of_host) device.kind = Kind::Xpu;
  if (type == "npu" && !of_host) device.kind = Kind::Npu;
  if (device.is_cpu()) return std::nullopt;
  if (own == type) return device;
  const std::optional<int> index = parse_gpu_index(own.substr(type.size() + 1));
  if (!index) return std::nullopt;
  device.index = *index;
  return device;
}

DeviceId device_id(std::string_view name) {
  return parse_device_id(name).value_or(DeviceId{std::string(host_of(name))});
}

std::string to_string(const DeviceId& device) {
  switch (device.kind) {
    case DeviceId::Kind::Cpu:
      return device_on(device.host, "cpu");
    case DeviceId::Kind::Cuda:
      return device_on(device.host, fmt::format("cuda:{}", device.index));
    case DeviceId::Kind::Xpu:
      return "xpu";
    case DeviceId::Kind::Npu:
      return "npu";
  }
  return "";
}

}  // namespace ktx::target

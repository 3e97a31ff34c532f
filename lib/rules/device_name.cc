#include "lib/rules/device_name.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <charconv>

#include "lib/support/strings.h"
#include "lib/target/host_device.h"

namespace ktx::rules {
namespace {

std::optional<int> parse_index(std::string_view text) {
  int value = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 0 || value > kMaxGpu) {
    return std::nullopt;
  }
  return value;
}

// "0", "0-3", "0,2", "*": the GPUs; an empty list is all.
std::optional<std::vector<int>> parse_indices(std::string_view text) {
  std::vector<int> gpus;
  if (text == "*") return gpus;
  for (std::string_view part : split(text, ',')) {
    const size_t dash = part.find('-');
    const auto first = parse_index(part.substr(0, dash));
    const auto last = dash == std::string_view::npos ? first : parse_index(part.substr(dash + 1));
    if (!first || !last || *last < *first) return std::nullopt;
    for (int gpu = *first; gpu <= *last; ++gpu) {
      if (std::find(gpus.begin(), gpus.end(), gpu) != gpus.end()) return std::nullopt;
      gpus.push_back(gpu);
    }
  }
  return gpus;
}

// "b/cpu": a device of one host; not of several, or of one to be chosen.
std::optional<DeviceSpec> parse_host_device(std::string_view text) {
  using Kind = DeviceSpec::Kind;
  const std::string_view host = target::host_of(text);
  if (!target::is_host_name(host)) return std::nullopt;
  auto device = parse_device(target::name_on_host(text));
  if (!device || (device->kind != Kind::Cpu && device->kind != Kind::Cuda)) return std::nullopt;
  device->host = host;
  return device;
}

}  // namespace

std::optional<DeviceSpec> parse_device(std::string_view text) {
  using Kind = DeviceSpec::Kind;
  if (text.find('/') != std::string_view::npos) return parse_host_device(text);
  if (text == "cpu") return DeviceSpec{Kind::Cpu, {}, Vendor::None, {}};
  if (text == "auto") return DeviceSpec{Kind::Auto, {}, Vendor::None, {}};
  if (text == "spread") return DeviceSpec{Kind::Spread, {}, Vendor::None, {}};
  const size_t colon = text.find(':');
  const std::string_view type = text.substr(0, colon);
  const bool has_index = colon != std::string_view::npos;
  const std::string_view index = has_index ? text.substr(colon + 1) : std::string_view();
  if (type == "cuda") {
    if (!has_index) return DeviceSpec{Kind::Cuda, {0}, Vendor::None, {}};
    auto gpus = parse_indices(index);
    if (!gpus) return std::nullopt;
    const Kind kind = gpus->size() == 1 ? Kind::Cuda : Kind::Spread;
    return DeviceSpec{kind, std::move(*gpus), Vendor::None, {}};
  }
  if (type == "xpu" || type == "npu") {
    if (has_index && !parse_index(index)) return std::nullopt;
    return DeviceSpec{Kind::Foreign, {}, type == "xpu" ? Vendor::Intel : Vendor::Ascend, {}};
  }
  return std::nullopt;
}

std::string to_string(const DeviceSpec& device) {
  using Kind = DeviceSpec::Kind;
  if (device.kind == Kind::Cpu) return target::device_on(device.host, "cpu");
  if (device.kind == Kind::Auto) return "auto";
  if (device.kind == Kind::Foreign) return device.vendor == Vendor::Intel ? "xpu" : "npu";
  if (device.gpus.empty()) return "cuda:*";
  return target::device_on(device.host, fmt::format("cuda:{}", fmt::join(device.gpus, ",")));
}

std::string nearest_device(std::string_view text) {
  std::string lower(text);
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  if (lower != text && parse_device(lower)) return lower;
  if (const size_t slash = text.find('/'); slash != std::string_view::npos) {
    const std::string near = nearest_device(text.substr(slash + 1));
    const std::string whole = std::string(text.substr(0, slash + 1)) + near;
    return parse_device(whole) ? whole : "";
  }
  const size_t digits = lower.find_first_of("0123456789");
  const bool has_index = digits != std::string::npos;
  std::string type = lower.substr(0, digits);
  while (!type.empty() && (type.back() == ':' || type.back() == ' ' || type.back() == '_')) {
    type.pop_back();
  }
  const std::string index = has_index ? lower.substr(digits) : "";
  if (type == "gpu" || type == "nvidia" || type == "vram" || type == "device") type = "cuda";
  if (type == "host" || type == "ram" || type == "dram") type = "cpu";
  const std::vector<std::string> types = {"cuda", "cpu", "auto", "spread"};
  const std::string near = nearest_name(type, types);
  if (near.empty()) return "";
  const std::string whole = near == "cuda" && has_index ? near + ":" + index : near;
  if (parse_device(whole)) return whole;
  return near == type ? "" : near;  // the number is wrong, not the name
}

}  // namespace ktx::rules

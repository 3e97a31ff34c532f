#include "lib/rules/device_name.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "lib/support/lower_case.h"
#include "lib/support/strings.h"
#include "lib/target/device_id.h"
#include "lib/target/host_device.h"

namespace ktx::rules {
namespace {

// "0", "0-3", "0,2", "*": the GPUs; an empty list is all.
std::optional<std::vector<int>> parse_indices(std::string_view text, char separator) {
  std::vector<int> gpus;
  if (text == "*") return gpus;
  for (std::string_view part : split(text, separator)) {
    const size_t dash = part.find('-');
    const auto first = target::parse_gpu_index(part.substr(0, dash));
    const auto last =
        dash == std::string_view::npos ? first : target::parse_gpu_index(part.substr(dash + 1));
    if (!first || !last || *last < *first) return std::nullopt;
    for (int gpu = *first; gpu <= *last; ++gpu) {
      if (std::find(gpus.begin(), gpus.end(), gpu) != gpus.end()) return std::nullopt;
      gpus.push_back(gpu);
    }
  }
  return gpus;
}

}  // namespace

std::optional<DeviceSpec> parse_device(std::string_view text) {
  using Kind = DeviceSpec::Kind;
  using Id = target::DeviceId;
  if (auto one = target::parse_device_id(text)) {
    if (one->kind == Id::Kind::Xpu) return DeviceSpec{Kind::Foreign, {}, Vendor::Intel};
    if (one->kind == Id::Kind::Npu) return DeviceSpec{Kind::Foreign, {}, Vendor::Ascend};
    if (one->is_cpu()) return DeviceSpec{Kind::Cpu, {}, Vendor::None, std::move(one->host)};
    return DeviceSpec{Kind::Cuda, {one->index}, Vendor::None, std::move(one->host)};
  }
  if (text == "auto") return DeviceSpec{Kind::Auto};
  if (text == "spread") return DeviceSpec{Kind::Spread};
  if (text == "split") return DeviceSpec{Kind::Split};
  if (!text.starts_with("cuda:")) return std::nullopt;
  const bool divided = text.find('+') != std::string_view::npos;
  auto gpus = parse_indices(text.substr(5), divided ? '+' : ',');
  if (!gpus) return std::nullopt;
  const Kind kind = gpus->size() == 1 ? Kind::Cuda : divided ? Kind::Split : Kind::Spread;
  return DeviceSpec{kind, std::move(*gpus)};
}

std::string to_string(const DeviceSpec& device) {
  using Kind = DeviceSpec::Kind;
  if (device.kind == Kind::Cpu) return target::device_on(device.host, "cpu");
  if (device.kind == Kind::Auto) return "auto";
  if (device.kind == Kind::Foreign) return device.vendor == Vendor::Intel ? "xpu" : "npu";
  const bool divided = device.kind == Kind::Split;
  if (device.gpus.empty()) return divided ? "split" : "cuda:*";
  if (divided) return fmt::format("cuda:{}", fmt::join(device.gpus, "+"));
  return target::device_on(device.host, fmt::format("cuda:{}", fmt::join(device.gpus, ",")));
}

std::string placed_name(const target::Target& target, DeviceSpec device) {
  if (!target.hosts.empty() && device.host == target.hosts.front().name) device.host.clear();
  return to_string(device);
}

std::string nearest_device(std::string_view text) {
  const std::string lower = in_lower_case(std::string(text));
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
  const std::vector<std::string> types = {"cuda", "cpu", "auto", "spread", "split"};
  const std::string near = nearest_name(type, types);
  if (near.empty()) return "";
  const std::string whole = near == "cuda" && has_index ? near + ":" + index : near;
  if (parse_device(whole)) return whole;
  return near == type ? "" : near;  // the number is wrong, not the name
}

}  // namespace ktx::rules

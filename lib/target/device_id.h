// A device of the machine, or of one of several (hosts), and its name:
//
//   cpu     cuda:1      of the first host, or of the only machine
//   b/cpu   b/cuda:1    of the host `b` of the target file
//   xpu     npu         of vendors that nothing is compiled for; rules name them
//
// Rules know more names, for devices that are still to be chosen (lib/rules/device_name.h).
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace ktx::target {

inline constexpr int kMaxGpu = 63;  // number on its host

struct DeviceId {
  enum class Kind : uint8_t { Cpu, Cuda, Xpu, Npu };

  std::string host = {};  // "": the first one
  Kind kind = Kind::Cpu;
  int index = 0;  // of a GPU

  bool is_cpu() const { return kind == Kind::Cpu; }
  int gpu() const { return kind == Kind::Cuda ? index : -1; }  // its number; -1: no GPU
  DeviceId cpu_beside() const { return {host}; }
  auto operator<=>(const DeviceId&) const = default;
};

std::optional<DeviceId> parse_device_id(std::string_view name);
// For a name that the compiler made; what parse_device_id() refuses is the CPU of that host.
DeviceId device_id(std::string_view name);
std::string to_string(const DeviceId& device);

// "17"; none above kMaxGpu.
std::optional<int> parse_gpu_index(std::string_view text);

}  // namespace ktx::target

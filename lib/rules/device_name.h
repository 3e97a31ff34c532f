// The grammar of devices in rules: one device (lib/target/device_id.h), or one that is still to be
// chosen.
//
//   cpu, cuda, cuda:N         as KTransformers has them; cuda is cuda:0
//   auto                      wherever it runs fastest within the memory
//   cuda:0-3, cuda:*, spread  layers spread over these GPUs, or over all, in order
//   cuda:0+1, split           layers divided over these GPUs, or over all: each computes a part
//   b/cpu, b/cuda:N           of the host `b` of a target file with several machines
//   xpu, xpu:N, npu, npu:N    known, but of vendors that are not compiled for
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lib/rules/operators.h"
#include "lib/target/target.h"

namespace ktx::rules {

struct DeviceSpec {
  enum class Kind { Cpu, Cuda, Auto, Spread, Split, Foreign };
  Kind kind = Kind::Cpu;
  std::vector<int> gpus = {};  // Cuda: one; Spread, Split: in order, empty = all of the target
  Vendor vendor = Vendor::None;
  std::string host = {};  // Cpu, Cuda: as it is written; "": the first host

  bool operator==(const DeviceSpec&) const = default;
};

std::optional<DeviceSpec> parse_device(std::string_view text);
// "cpu", "cuda:1", "auto", "cuda:0,1,2", "cuda:*", "cuda:0+1", "split", "b/cpu", "npu":
// parse_device reads it back.
std::string to_string(const DeviceSpec& device);
// The name that modules of a target have for the device: those of the first host lose its name
// (lib/target/device_id.h).
std::string placed_name(const target::Target& target, DeviceSpec device);
// What was meant by a name that parse_device refuses ("gpu" -> "cuda"), or "".
std::string nearest_device(std::string_view text);

}  // namespace ktx::rules

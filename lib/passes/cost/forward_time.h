// Predicts the time of a pass: a token of decode, or a chunk of a prompt. All rates come from the
// target: measured ones where its profile has them, else rated figures times the share that
// kernels usually reach.
//
//   predict_forward(program, target, {.tokens = 1})
//     // cpu     1.10 GiB at 97 GB/s                    12.2 ms
//     // cuda:0  0.66 GiB at 4300 GB/s, 243 kernels      1.1 ms
//     // 96 hand-overs                                   1.5 ms
//
// The time of a step is that of reading its weights or of its arithmetic, whichever is longer; of
// routed experts a pass reads those that its tokens choose, if all of a step are alike likely.
// Devices take turns, but where a GPU is queued work beside a part of the CPU (its own experts of
// the layer, shared experts; the next layer's attention beside deferred experts): there the longer
// of the two counts. Streamed experts come piece by piece over PCIe while the GPU computes what
// came before, as far ahead as two slots allow. Hosts go on by themselves until
// they wait for a message: what crosses the network between two of them is one for each boundary,
// and an end of a wire has one at a time. So those of a pipeline take turns, and those that share a
// layer's experts work at once.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lib/plan/stream_slots.h"
#include "lib/program/program.h"
#include "lib/target/device_id.h"
#include "lib/target/target.h"

namespace ktx::passes {

// The share of a CPU's rated bandwidth that decode is taken to read where nothing is measured: 0.82
// of what plain reads reach (docs/performance.md), which is about 0.85 of the rated figure.
// Published runs of llama.cpp on one socket and ours lie between the least and the most; on several
// NUMA nodes they begin lower.
inline constexpr double kCpuReadShare = 0.7;
inline constexpr double kLeastCpuReadShare = 0.55, kMostCpuReadShare = 0.85;
inline constexpr double kLeastNumaReadShare = 0.3;

// Routed experts of a chunk are short products: the share of the rate of long ones. Measured with
// 128 experts of 768 on an H200 and 16 cores beside it.
inline constexpr double kCpuExpertShare = 0.65;
inline constexpr double kGpuExpertShare = 0.35;

// A token's hand-over from a GPU to the CPU or back; measured on an H200, assumed for others.
inline constexpr double kHandOverSeconds = 16e-6;

// A sum of what several GPUs have, apart from moving its bytes: for a few tokens, and for prompts
// (H200 over NVLink); where GPUs do not reach each other, through the host's memory by kernels, and
// for prompts by copies (both assumed).
inline constexpr double kSmallSumSeconds = 5e-6, kSumSeconds = 40e-6;
inline constexpr double kHostSumSeconds = 20e-6, kCopiedSumSeconds = 100e-6;
// How long GPUs wait until all have come to a small sum, where the target has its time (sum_us).
inline constexpr double kSumWaitSeconds = 2.5e-6;
// A copy from one GPU of a team to another, apart from moving the bytes; assumed.
inline constexpr double kPeerCopySeconds = 10e-6;

// What a prediction computes with; 0: not known.
struct DeviceRates {
  double read = 0;        // bytes a second, of its memory
  double arithmetic = 0;  // operations a second, in long products
  double launch = 0;      // seconds a kernel, beside its weights
  double hand_over = 0;   // seconds, from the device to the CPU or back
  double pcie = 0;        // bytes a second, from host memory
  double peer = 0;        // from the memory of the GPUs beside it; 0: it does not reach that
  double between = 0;     // bytes a second from GPU to GPU while all copy, reached or not
  double sum = 0;         // seconds, of 16 KiB over all GPUs; 0: not measured
  double sum_mib = 0;     // of 1 MiB
  bool read_measured = false;
};
// A GPU that the target lacks has no rates.
DeviceRates rates_of(const target::Target& target, const target::DeviceId& device);

struct DeviceTime {
  std::string device;
  DeviceRates rates;
  uint64_t read_bytes = 0;    // weights
  int64_t launches = 0;       // kernels of a GPU
  uint64_t copied_bytes = 0;  // weights of streamed experts, from host memory
  double seconds = 0;
};

struct ForwardTime {
  int64_t tokens = 0;
  // In the order of hosts, on each the CPU first, then GPUs by number; those that have work.
  std::vector<DeviceTime> devices;
  int64_t hand_overs = 0;
  double hand_over_seconds = 0;
  int64_t messages = 0;  // between hosts
  uint64_t network_bytes = 0;
  double network_seconds = 0;
  bool network_assumed = false;  // the target does not say all of its network
  uint64_t disk_bytes = 0;       // of routed experts (experts_on_disk.h)
  double disk_seconds = 0;
  double beside_seconds = 0;   // of the devices, saved by their work beside each other
  double busiest_seconds = 0;  // of the host, or the end of a wire, that has most to do
  bool known = false;          // all rates are
  double seconds = 0;
};

struct ForwardShape {
  int64_t tokens = 1;
  int64_t before = 0;  // positions in the cache; reading their keys and values is not counted
  plan::StreamSlots slots = plan::StreamSlots::Layer;  // of streamed experts
  int64_t joint = 0;                                   // of them too (lib/program/joint_experts.h)
};

// `program` has its launches (launched_steps.h).
ForwardTime predict_forward(const program::Program& program, const target::Target& target,
                            const ForwardShape& shape);

}  // namespace ktx::passes

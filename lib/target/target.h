// The machine: facts that determine placement, layouts and the number of threads.
//
//   const Target host = detect_host();
//   host.cpu.default_threads()   // 8 on a machine of 8 cores with 16 hardware threads
//
// Facts only; rates are measured elsewhere and given as files. The same struct also describes
// another machine (`ktx-compile --target=FILE`).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lib/target/isa.h"

namespace ktx::target {

struct NumaNode {
  int id = 0;
  int cpus = 0;
  uint64_t memory_bytes = 0;
};

struct CpuTarget {
  std::string model;      // "AMD EPYC 9654 96-Core Processor"; for people
  Isa isa = Isa::Scalar;  // the best it has
  // Hardware threads and cores that this process may use: its affinity mask
  // counts, its quota does not.
  int hardware_threads = 1;
  int cores = 1;
  std::optional<double> cpu_quota;  // of the control group, in hardware threads
  uint64_t memory_bytes = 0;        // installed, or the control group's limit
  std::vector<NumaNode> numa;       // empty when unknown
  double bandwidth_gbps = 0;        // of all memory channels, as rated; 0: not stated
  double read_gbps = 0;             // measured, all cores; 0: not measured
  double int8_tops = 0;             // measured in long products, all cores; 0: not measured
  double disk_gbps = 0;             // of experts' reads past the page cache; 0: not stated

  // One per core: two threads of one core share its memory port and its vector
  // units. A quota is rounded up, since throttling costs all threads alike.
  int default_threads() const;
};

struct GpuTarget {
  std::string name;
  int compute_major = 0;
  int compute_minor = 0;
  uint64_t memory_bytes = 0;
  double bandwidth_gbps = 0;  // of its memory, as rated; 0: not stated
  double pcie_gbps = 0;       // from pinned host memory; 0: not stated
  // From the memory of the GPUs beside it, by kernels; 0: not known to be reached.
  double peer_gbps = 0;
  // Into that, and each way where two copy at once, by way of the host where it is not reached; 0:
  // not stated.
  double peer_write_gbps = 0;
  double peer_both_gbps = 0;
  // What a sum of 16 KiB and of 1 MiB over all GPUs takes; 0: not stated.
  double sum_us = 0;
  double sum_mib_us = 0;
  int multiprocessors = 0;  // SMs; 0: not stated
  // Measured; 0: not measured.
  double read_gbps = 0;     // of its memory
  double tflops = 0;        // of long products with activations in F16
  double launch_us = 0;     // that a kernel of one token takes beside reading its weights
  double hand_over_us = 0;  // of a token, from the GPU to the CPU or back
};

// The share of a network's rated bits that is left for values once packets have their headers.
inline constexpr double kNetworkPayload = 0.94;

// A machine of several that compute one model together, and its link to the network that
// connects all of them.
struct HostTarget {
  std::string name;  // of its devices: "b/cpu" (host_device.h)
  CpuTarget cpu;
  double network_gbit = 0;        // 10^9 bits a second, each way; 0: not stated
  double network_latency_us = 0;  // of a message of a few bytes; 0: not stated
  // "b/cuda:0", ...; of the first host they are in Target::gpus instead.
  std::vector<GpuTarget> gpus = {};
};

struct Target {
  CpuTarget cpu;                // of the first host where there are several
  std::vector<GpuTarget> gpus;  // likewise
  // In the order in which they have their parts of a model; empty: one machine, without a name.
  std::vector<HostTarget> hosts;
  std::string name;  // of the file that describes it; "" for the host
};

// `root` is put before every path of /proc and /sys, so that tests can show
// another machine. Never fails: what cannot be read stays at its default.
Target detect_host(const std::string& root = "");

// The GPUs that the driver shows, in its order (CUDA_VISIBLE_DEVICES counts); none
// without a driver. Takes a tenth of a second where there is one.
std::vector<GpuTarget> detect_gpus();

// Memory that can be allocated now without swapping: MemAvailable, or what the
// control group leaves; nothing when neither can be read. No fact: it changes with
// every program on the machine.
std::optional<uint64_t> available_memory(const std::string& root = "");

// Bytes of the third-level caches of our hardware threads, all together, as the kernel
// reports them, else as the C library does; 0 when neither does.
uint64_t last_level_cache_bytes(const std::string& root = "");

}  // namespace ktx::target

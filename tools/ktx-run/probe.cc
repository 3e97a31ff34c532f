// ktx-run probe: measures this machine, as a file for `ktx-compile --target`.
//
//   gpus:
//     - {name: "NVIDIA H200", compute_capability: 9.0, ..., pcie_gbps: 55.3, read_gbps: 4300}
//   cpu: {name: "...", isa: amx, cores: 16, ..., read_gbps: 97.1, int8_tops: 3.2}
//
// Under mpirun it measures all machines and the network (probe_hosts.h).
#include <fmt/format.h>

#include "lib/runtime/gpu/measure_sums.h"
#include "lib/support/write_file.h"
#include "lib/target/gpu_links.h"
#include "lib/target/gpu_rates.h"
#include "lib/target/target_text.h"
#include "tools/ktx-run/commands.h"
#include "tools/ktx-run/disk_rate.h"
#include "tools/ktx-run/int8_rate.h"
#include "tools/ktx-run/probe_hosts.h"
#include "tools/ktx-run/read_bandwidth.h"

namespace ktx::tools {
namespace {

// Products with weights reach this share of the instructions' peak (docs/performance.md).
constexpr double kProductShare = 0.6;

// Between GPUs, by kernels.
Status measure_sums(std::vector<target::GpuTarget>& gpus) {
  std::vector<std::unique_ptr<runtime::Gpu>> open;
  for (size_t i = 0; i < gpus.size(); ++i) {
    open.push_back(KTX_TRY(runtime::open_gpu(static_cast<int>(i))));
  }
  const runtime::SumTimes times = KTX_TRY(runtime::measure_sums(open));
  for (target::GpuTarget& gpu : gpus) {
    gpu.sum_us = times.seconds_16k * 1e6;
    gpu.sum_mib_us = times.seconds_mib * 1e6;
    gpu.peer_gbps = times.read / 1e9;
  }
  return {};
}

void measure_between(std::vector<target::GpuTarget>& gpus) {
  if (gpus.size() < 2) return;
  for (const Status& measured : {target::measure_gpu_links(gpus), measure_sums(gpus)}) {
    if (measured) continue;
    fmt::print(stderr, "ktx-run: warning: what goes between GPUs was not measured: {}\n",
               measured.error().message);
  }
}

}  // namespace

target::Target measure_machine() {
  target::Target machine = target::detect_host();
  machine.gpus = target::detect_gpus();
  const int threads = machine.cpu.default_threads();
  machine.cpu.read_gbps = measure_read_bandwidth(threads) / 1e9;
  if (machine.cpu.read_gbps == 0) {
    fmt::print(
        stderr,
        "ktx-run: warning: the read bandwidth of cpu is not measured: this process may not have "
        "twice the memory of the last cache; raise the limit (ulimit -v)\n");
  }
  machine.cpu.int8_tops = kProductShare * measure_int8_rate(threads, machine.cpu.isa) / 1e12;
  for (size_t i = 0; i < machine.gpus.size(); ++i) {
    const Status measured = target::measure_gpu(static_cast<int>(i), machine.gpus[i]);
    if (measured) continue;
    fmt::print(stderr, "ktx-run: warning: cuda:{} was not measured; rated figures are used: {}\n",
               i, measured.error().message);
  }
  measure_between(machine.gpus);
  return machine;
}

int run_probe(const Options& options) {
  const auto& hosts = options.engine.hosts;
  Result<target::Target> machine =
      hosts ? probe_hosts(*hosts, measure_machine) : Result<target::Target>(measure_machine());
  if (!machine) {
    fmt::print(stderr, "ktx-run: error: {}\n", machine.error().message);
    return 1;
  }
  if (!options.probe_disk.empty()) {
    const Result<double> rate = hosts ? Error{"--disk is for one machine: experts of several hosts "
                                              "are not read from disk"}
                                      : measure_disk_rate(options.probe_disk);
    if (!rate) {
      fmt::print(stderr, "ktx-run: error: {}\n", rate.error().message);
      return 1;
    }
    machine->cpu.disk_gbps = *rate / 1e9;
  }
  const std::string text =
      fmt::format("# Measured by ktx-run probe, {} threads{}.\n{}", machine->cpu.default_threads(),
                  hosts ? " on the first host" : "", target_text(*machine));
  if (options.probe_file.empty()) {
    fmt::print("{}", text);
    return 0;
  }
  const Status written = write_file(options.probe_file, "# Measured by ktx-run probe", text);
  if (written) return 0;
  fmt::print(stderr, "ktx-run: error: {}\n", written.error().message);
  return 1;
}

}  // namespace ktx::tools

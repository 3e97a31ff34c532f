#include "lib/target/target_text.h"

#include <fmt/format.h>

#include <algorithm>

#include "lib/support/strings.h"

namespace ktx::target {
namespace {

constexpr double kGiB = 1024.0 * 1024 * 1024;

// ", key: value", or nothing where it is not known.
std::string rate(const char* key, double value) {
  return value > 0 ? fmt::format(", {}: {:.4g}", key, value) : "";
}

// In double quotes: a name may hold anything that a driver or /proc says.
std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : printable(text)) {
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  return out + '"';
}

std::string cpu_text(const CpuTarget& cpu) {
  std::string out = "{";
  if (!cpu.model.empty()) out += "name: " + quoted(cpu.model) + ", ";
  out += fmt::format("isa: {}, cores: {}, memory_gib: {:.2f}, numa_nodes: {}", name(cpu.isa),
                     cpu.cores, static_cast<double>(cpu.memory_bytes) / kGiB,
                     std::max<size_t>(1, cpu.numa.size()));
  return out + rate("bandwidth_gbps", cpu.bandwidth_gbps) + rate("read_gbps", cpu.read_gbps) +
         rate("int8_tops", cpu.int8_tops) + rate("disk_gbps", cpu.disk_gbps) + "}";
}

std::string gpu_text(const GpuTarget& gpu) {
  std::string out = fmt::format("{{name: {}, compute_capability: {}.{}, memory_gib: {:.2f}",
                                quoted(gpu.name), gpu.compute_major, gpu.compute_minor,
                                static_cast<double>(gpu.memory_bytes) / kGiB);
  if (gpu.multiprocessors > 0) out += fmt::format(", sms: {}", gpu.multiprocessors);
  return out + rate("bandwidth_gbps", gpu.bandwidth_gbps) + rate("pcie_gbps", gpu.pcie_gbps) +
         rate("peer_gbps", gpu.peer_gbps) + rate("peer_write_gbps", gpu.peer_write_gbps) +
         rate("peer_both_gbps", gpu.peer_both_gbps) + rate("sum_us", gpu.sum_us) +
         rate("sum_mib_us", gpu.sum_mib_us) + rate("read_gbps", gpu.read_gbps) +
         rate("tflops", gpu.tflops) + rate("launch_us", gpu.launch_us) +
         rate("hand_over_us", gpu.hand_over_us) + "}";
}

// A host of several, on one line; with each of its GPUs on a line of its own behind it.
std::string host_text(const HostTarget& host) {
  std::string out = fmt::format("  - {{name: {}, cpu: {}", host.name, cpu_text(host.cpu));
  const std::string network =
      rate("gbit", host.network_gbit) + rate("latency_us", host.network_latency_us);
  if (!network.empty()) out += fmt::format(", network: {{{}}}", network.substr(2));
  for (size_t i = 0; i < host.gpus.size(); ++i) {
    out += (i == 0 ? ",\n     gpus: [" : ",\n            ") + gpu_text(host.gpus[i]);
  }
  return out + (host.gpus.empty() ? "}\n" : "]}\n");
}

}  // namespace

std::string target_text(const Target& target) {
  std::string out = target.name.empty() ? "" : "name: " + quoted(target.name) + "\n";
  out += target.gpus.empty() ? "gpus: []\n" : "gpus:\n";
  for (const GpuTarget& gpu : target.gpus) out += "  - " + gpu_text(gpu) + "\n";
  if (target.hosts.empty()) return out + "cpu: " + cpu_text(target.cpu) + "\n";
  out += "hosts:\n";
  for (const HostTarget& host : target.hosts) out += host_text(host);
  return out;
}

}  // namespace ktx::target

#include "lib/target/target.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "lib/target/cgroup.h"
#include "lib/target/proc_text.h"
#include "lib/target/usable_cpus.h"

namespace ktx::target {
namespace {

int count_cores(const std::string& root, const std::vector<int>& cpus) {
  std::set<std::pair<uint64_t, uint64_t>> cores;  // package, core
  for (int cpu : cpus) {
    const auto core = core_of_cpu(root, cpu);
    if (!core) return static_cast<int>(cpus.size());
    cores.insert(*core);
  }
  return static_cast<int>(cores.size());
}

std::string cpu_model(const std::string& root) {
  const auto text = read_proc(root + "/proc/cpuinfo");
  if (!text) return "";
  for (std::string_view line : split(*text, '\n')) {
    const size_t colon = line.find(':');
    if (line.starts_with("model name") && colon != line.npos) {
      return printable(trim(line.substr(colon + 1)));
    }
  }
  return "";
}

std::vector<NumaNode> numa_nodes(const std::string& root) {
  std::vector<NumaNode> nodes;
  const auto online = read_proc(root + "/sys/devices/system/node/online");
  if (!online) return nodes;
  for (int id : parse_cpu_list(*online)) {
    const std::string directory = fmt::format("{}/sys/devices/system/node/node{}/", root, id);
    const auto cpus = read_proc(directory + "cpulist");
    const auto memory = read_proc(directory + "meminfo");
    const auto kib = memory ? field(*memory, fmt::format("Node {} MemTotal", id)) : std::nullopt;
    nodes.push_back(
        {id, cpus ? static_cast<int>(parse_cpu_list(*cpus).size()) : 0, kib.value_or(0) * 1024});
  }
  return nodes;
}

}  // namespace

int CpuTarget::default_threads() const {
  const double limit = cpu_quota ? std::ceil(*cpu_quota) : cores;
  return std::max(1, std::min(cores, static_cast<int>(std::min(limit, 65536.0))));
}

Target detect_host(const std::string& root) {
  Target host;
  const std::vector<int> cpus = usable_cpus(root);
  const CgroupLimits limits = read_cgroup_limits(root);
  host.cpu.model = cpu_model(root);
  if (root.empty()) host.cpu.isa = detect_isa();
  host.cpu.hardware_threads = static_cast<int>(cpus.size());
  host.cpu.cores = count_cores(root, cpus);
  host.cpu.cpu_quota = limits.cpus;
  const auto meminfo = read_proc(root + "/proc/meminfo");
  const uint64_t total = meminfo ? field(*meminfo, "MemTotal").value_or(0) * 1024 : 0;
  host.cpu.memory_bytes = std::min(total, limits.memory_bytes.value_or(total));
  host.cpu.numa = numa_nodes(root);
  return host;
}

std::optional<uint64_t> available_memory(const std::string& root) {
  std::optional<uint64_t> available = read_cgroup_limits(root).memory_available;
  const auto meminfo = read_proc(root + "/proc/meminfo");
  if (const auto kib = meminfo ? field(*meminfo, "MemAvailable") : std::nullopt) {
    available = std::min(available.value_or(*kib * 1024), *kib * 1024);
  }
  return available;
}

uint64_t last_level_cache_bytes(const std::string& root) {
  std::set<std::string> seen;  // the threads that share one
  uint64_t bytes = 0;
  for (int cpu : usable_cpus(root)) {
    const std::string cache =
        fmt::format("{}/sys/devices/system/cpu/cpu{}/cache/index3/", root, cpu);
    const auto shared = read_proc(cache + "shared_cpu_list");
    const auto size = read_proc(cache + "size");  // "32768K"
    if (!shared || !size || !seen.insert(*shared).second) continue;
    const std::string_view kib = trim(*size);
    if (!kib.ends_with('K')) continue;
    bytes += parse_number(kib.substr(0, kib.size() - 1)).value_or(0) * 1024;
  }
#ifdef _SC_LEVEL3_CACHE_SIZE
  if (root.empty() && bytes == 0) {  // the C library's is the host's, on some virtual machines
    const long one = sysconf(_SC_LEVEL3_CACHE_SIZE);
    if (one > 0) bytes = static_cast<uint64_t>(one);
  }
#endif
  return bytes;
}

}  // namespace ktx::target

#include "lib/target/usable_cpus.h"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <thread>

#include "lib/target/proc_text.h"

namespace ktx::target {

std::vector<int> usable_cpus(const std::string& root) {
  const auto online = read_proc(root + "/sys/devices/system/cpu/online");
  std::vector<int> cpus = online ? parse_cpu_list(*online) : std::vector<int>();
  if (cpus.empty()) {
    for (unsigned i = 0; i < std::max(1u, std::thread::hardware_concurrency()); ++i) {
      cpus.push_back(static_cast<int>(i));
    }
  }
  if (!root.empty()) return cpus;
  // Machines with more than 1024 hardware threads need a larger mask than
  // cpu_set_t; 65536 bits are enough for every kernel configuration.
  std::vector<cpu_set_t> mask(64);
  const size_t mask_bytes = mask.size() * sizeof(cpu_set_t);
  if (sched_getaffinity(0, mask_bytes, mask.data()) != 0) return cpus;
  std::erase_if(cpus, [&](int cpu) { return !CPU_ISSET_S(cpu, mask_bytes, mask.data()); });
  if (cpus.empty()) cpus.push_back(0);
  return cpus;
}

std::optional<std::pair<uint64_t, uint64_t>> core_of_cpu(const std::string& root, int cpu) {
  const std::string topology = fmt::format("{}/sys/devices/system/cpu/cpu{}/topology/", root, cpu);
  const auto package = read_number(topology + "physical_package_id");
  const auto core = read_number(topology + "core_id");
  if (!package || !core) return std::nullopt;
  return std::pair(*package, *core);
}

}  // namespace ktx::target

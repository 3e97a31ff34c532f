#include "lib/target/thread_places.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>

#include "lib/target/proc_text.h"
#include "lib/target/usable_cpus.h"

namespace ktx::target {
namespace {

// By processor: its node; processors that no node lists belong to node 0.
std::map<int, int> node_of_cpus(const std::string& root) {
  std::map<int, int> nodes;
  const auto online = read_proc(root + "/sys/devices/system/node/online");
  if (!online) return nodes;
  for (int id : parse_cpu_list(*online)) {
    const auto cpus = read_proc(fmt::format("{}/sys/devices/system/node/node{}/cpulist", root, id));
    if (!cpus) continue;
    for (int cpu : parse_cpu_list(*cpus)) nodes[cpu] = id;
  }
  return nodes;
}

// The processors of a node in the order in which they are taken: one of each core, then
// the others.
struct Seats {
  std::vector<int> first, more;
  std::set<std::pair<uint64_t, uint64_t>> cores;
};

std::map<int, Seats> seats_by_node(const std::string& root) {
  std::map<int, Seats> all;
  const std::map<int, int> nodes = node_of_cpus(root);
  for (int cpu : usable_cpus(root)) {
    const auto node = nodes.find(cpu);
    Seats& seats = all[node == nodes.end() ? 0 : node->second];
    const auto core = core_of_cpu(root, cpu);
    const bool is_new = !core || seats.cores.insert(*core).second;
    (is_new ? seats.first : seats.more).push_back(cpu);
  }
  return all;
}

}  // namespace

ThreadPlaces place_threads(int threads, const std::string& root) {
  ThreadPlaces places;
  std::map<int, Seats> seats = seats_by_node(root);
  std::map<int, std::vector<int>> taken;
  int left = threads;
  for (const bool first : {true, false}) {
    for (size_t i = 0, before = SIZE_MAX; left > 0 && before != 0; ++i) {
      before = 0;
      for (auto& [node, of_node] : seats) {
        const std::vector<int>& cpus = first ? of_node.first : of_node.more;
        if (i >= cpus.size() || left == 0) continue;
        taken[node].push_back(cpus[i]);
        --left;
        ++before;
      }
    }
  }
  if (left > 0 || taken.size() > static_cast<size_t>(ThreadPool::kMaxShares)) return places;
  for (const auto& [node, cpus] : taken) {
    const int share = static_cast<int>(places.nodes.size());
    for (int cpu : cpus) places.threads.push_back({cpu, share});
    places.nodes.push_back(node);
  }
  return places;
}

}  // namespace ktx::target

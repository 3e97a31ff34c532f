#include "lib/target/cgroup.h"

#include <algorithm>

#include "lib/target/proc_text.h"

namespace ktx::target {
namespace {

// Version 1 says "no limit" with a number near 2^63.
constexpr uint64_t kNoLimit = uint64_t{1} << 60;

// Where a hierarchy is mounted: `directory` shows the groups below `group`.
struct Mount {
  bool v2 = false;
  std::string group;
  std::string directory;
  std::vector<std::string> controllers;  // version 1: "cpu", "cpuacct", ...
};

std::vector<std::string> strings(const std::vector<std::string_view>& views) {
  return {views.begin(), views.end()};
}

// Lines such as "35 31 0:32 /docker/a /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory".
std::vector<Mount> read_mounts(const std::string& root) {
  std::vector<Mount> mounts;
  const auto text = read_proc(root + "/proc/self/mountinfo");
  if (!text) return mounts;
  for (std::string_view line : split(*text, '\n')) {
    const size_t dash = line.find(" - ");
    if (dash == line.npos) continue;
    const auto before = split(line.substr(0, dash), ' ');
    const auto after = split(line.substr(dash + 3), ' ');
    if (before.size() < 5 || after.size() < 3) continue;
    if (after[0] != "cgroup" && after[0] != "cgroup2") continue;
    mounts.push_back({after[0] == "cgroup2", std::string(before[3]), std::string(before[4]),
                      strings(split(after[2], ','))});
  }
  return mounts;
}

bool has(const std::vector<std::string>& list, std::string_view name) {
  return std::find(list.begin(), list.end(), name) != list.end();
}

// The directories of our group and its parents, innermost first, in the hierarchy
// of `controller`.
struct Path {
  bool v2 = false;
  std::vector<std::string> directories;
};
std::vector<Path> paths_of(const std::string& root, std::string_view controller) {
  std::vector<Path> paths;
  const auto text = read_proc(root + "/proc/self/cgroup");
  if (!text) return paths;
  const std::vector<Mount> mounts = read_mounts(root);
  for (std::string_view line : split(*text, '\n')) {  // "4:memory:/docker/a", "0::/user"
    const auto parts = split(line, ':');
    if (parts.size() < 3) continue;
    const bool v2 = parts[0] == "0" && parts[1].empty();
    if (!v2 && !has(strings(split(parts[1], ',')), controller)) continue;
    const std::string group(line.substr(parts[0].size() + parts[1].size() + 2));
    for (const Mount& mount : mounts) {
      if (mount.v2 != v2 || (!v2 && !has(mount.controllers, controller))) continue;
      // Inside of a container the group may be named as the host sees it, while
      // the mount shows only what is below it.
      std::string below = group;
      if (mount.group != "/") {
        below = group.starts_with(mount.group) ? group.substr(mount.group.size()) : "";
      }
      if (below.find("/..") != below.npos) below.clear();
      Path path{v2, {}};
      while (!below.empty() && below != "/") {
        path.directories.push_back(root + mount.directory + below);
        below.resize(below.rfind('/') == below.npos ? 0 : below.rfind('/'));
      }
      path.directories.push_back(root + mount.directory);
      paths.push_back(std::move(path));
      break;
    }
  }
  return paths;
}

// "max 100000" or "150000 100000".
std::optional<double> cpus_v2(const std::string& directory) {
  const auto text = read_proc(directory + "/cpu.max");
  if (!text) return std::nullopt;
  const auto parts = split(trim(*text), ' ');
  if (parts.size() != 2) return std::nullopt;
  const auto quota = parse_number(parts[0]), period = parse_number(parts[1]);
  if (!quota || !period || *period == 0) return std::nullopt;
  return static_cast<double>(*quota) / static_cast<double>(*period);
}

std::optional<double> cpus_v1(const std::string& directory) {
  const auto quota = read_number(directory + "/cpu.cfs_quota_us");  // -1: none
  const auto period = read_number(directory + "/cpu.cfs_period_us");
  if (!quota || !period || *period == 0) return std::nullopt;
  return static_cast<double>(*quota) / static_cast<double>(*period);
}

struct MemoryFiles {
  const char *limit, *used, *inactive, *active;
};
constexpr MemoryFiles kMemoryV1 = {"/memory.limit_in_bytes", "/memory.usage_in_bytes",
                                   "total_inactive_file", "total_active_file"};
constexpr MemoryFiles kMemoryV2 = {"/memory.max", "/memory.current", "inactive_file",
                                   "active_file"};

void add_memory(const std::string& directory, const MemoryFiles& files, CgroupLimits& limits) {
  const auto limit = read_number(directory + files.limit);
  if (!limit || *limit >= kNoLimit) return;
  uint64_t used = read_number(directory + files.used).value_or(0);
  if (const auto stat = read_proc(directory + "/memory.stat")) {
    const uint64_t cache =
        field(*stat, files.inactive).value_or(0) + field(*stat, files.active).value_or(0);
    used -= std::min(used, cache);
  }
  const uint64_t available = *limit - std::min(*limit, used);
  limits.memory_bytes = std::min(limits.memory_bytes.value_or(*limit), *limit);
  limits.memory_available = std::min(limits.memory_available.value_or(available), available);
}

}  // namespace

CgroupLimits read_cgroup_limits(const std::string& root) {
  CgroupLimits limits;
  for (const Path& path : paths_of(root, "cpu")) {
    for (const std::string& directory : path.directories) {
      const auto cpus = path.v2 ? cpus_v2(directory) : cpus_v1(directory);
      if (cpus && *cpus > 0) limits.cpus = std::min(limits.cpus.value_or(*cpus), *cpus);
    }
  }
  for (const Path& path : paths_of(root, "memory")) {
    for (const std::string& directory : path.directories) {
      add_memory(directory, path.v2 ? kMemoryV2 : kMemoryV1, limits);
    }
  }
  return limits;
}

}  // namespace ktx::target

// The limits of this process's control group: cores and memory.
//
//   docker run --cpus=1.5 -m 2g   ->   cpus = 1.5, memory_bytes = 2 GiB
//
// Containers and services are limited this way while /proc still shows the whole machine. Reads
// both cgroup versions; the tightest limit of the group and its parents counts. A value that
// cannot be read is no limit.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace ktx::target {

struct CgroupLimits {
  std::optional<double> cpus;            // quota / period
  std::optional<uint64_t> memory_bytes;  // the limit
  // What is still free under the tightest limit: pages of files do not count as
  // used, because the kernel drops them when memory is needed.
  std::optional<uint64_t> memory_available;
};

// `root` is put before every path, so that tests can show another machine.
CgroupLimits read_cgroup_limits(const std::string& root = "");

}  // namespace ktx::target

// The hardware threads of the machine, from /sys and the affinity mask. Private to lib/target.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace ktx::target {

// Those in our affinity mask; of a test's machine (`root` not empty), all of them.
std::vector<int> usable_cpus(const std::string& root);

// Package and core; nothing when /sys does not say.
std::optional<std::pair<uint64_t, uint64_t>> core_of_cpu(const std::string& root, int cpu);

}  // namespace ktx::target

// Assigns the threads of a run to CPUs and NUMA nodes.
//
//   two sockets of 4 cores with 2 hardware threads each, 6 threads:
//     cpus 0 1 2 of node 0, cpus 4 5 6 of node 1     (8 to 15 are their siblings)
//
// Cores are taken from the nodes in turn, so that all memory channels work. Second hardware
// threads are used only when the cores are used up. The affinity mask is respected.
#pragma once

#include <string>
#include <vector>

#include "lib/support/thread_pool.h"

namespace ktx::target {

struct ThreadPlaces {
  std::vector<ThreadPlace> threads;  // by node; empty: there are too few processors
  std::vector<int> nodes;            // by share: the system's number of the node
};

// `root` is put before every path of /sys, as in detect_host().
ThreadPlaces place_threads(int threads, const std::string& root = "");

}  // namespace ktx::target

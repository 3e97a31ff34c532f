// Has the system read the weights ahead in the background, so that a plan that is not in the
// page cache streams at the disk's speed instead of page by page. Then moves the weights of
// each NUMA node's threads into its memory.
#pragma once

#include <atomic>
#include <span>
#include <thread>
#include <vector>

#include "lib/plan/plan_reader.h"
#include "lib/runtime/cpu/node_weights.h"

namespace ktx::runtime {

class WarmUp {
 public:
  // NoExperts: without the routed experts, which a cache reads (experts/expert_cache.h).
  enum class Weights { All, NoExperts };
  // Starts a thread that goes through the segments which steps read, and then through
  // `runs`; nodes are the system's numbers, by share. `plan` must outlive this object.
  explicit WarmUp(const plan::PlanFile& plan, Weights weights = Weights::All,
                  std::vector<NodeRun> runs = {}, std::vector<int> nodes = {});
  ~WarmUp();  // stops at the next 64 MiB, or run
  WarmUp(const WarmUp&) = delete;
  WarmUp& operator=(const WarmUp&) = delete;

 private:
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

}  // namespace ktx::runtime

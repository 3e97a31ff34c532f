#include "lib/runtime/cpu/warm_up.h"

#include <algorithm>
#include <system_error>
#include <utility>

#include "lib/plan/device_memory.h"
#include "lib/support/memory_node.h"
#include "lib/support/signal_block.h"

namespace ktx::runtime {

WarmUp::WarmUp(const plan::PlanFile& plan, std::vector<NodeRun> runs, std::vector<int> nodes) {
  const auto go = [this, &plan, runs = std::move(runs), nodes = std::move(nodes)] {
    constexpr uint64_t kPiece = 64 << 20;
    for (const plan::FileRange& range : plan::weight_ranges(plan.view(), "cpu")) {
      for (uint64_t at = 0; at < range.bytes && !stop_.load(); at += kPiece) {
        plan.mapping().advise_will_need(range.offset + at, std::min(kPiece, range.bytes - at));
      }
    }
    for (const NodeRun& run : runs) {
      if (stop_.load() || !move_to_node(run.bytes, nodes[static_cast<size_t>(run.share)])) return;
    }
  };
  try {
    const SignalBlock block;
    thread_ = std::thread(go);
  } catch (const std::system_error&) {
    // No thread to be had: the pages come when they are read.
  }
}

WarmUp::~WarmUp() {
  stop_.store(true);
  if (thread_.joinable()) thread_.join();
}

}  // namespace ktx::runtime

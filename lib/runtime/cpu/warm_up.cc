#include "lib/runtime/cpu/warm_up.h"

#include <algorithm>
#include <system_error>
#include <utility>

#include "lib/plan/device_memory.h"
#include "lib/plan/expert_memory.h"
#include "lib/support/memory_node.h"
#include "lib/support/signal_block.h"

namespace ktx::runtime {

namespace {

std::vector<plan::FileRange> ranges_of(const plan::PlanView& plan, WarmUp::Weights weights) {
  if (weights == WarmUp::Weights::All) return plan::weight_ranges(plan, "cpu");
  std::vector<bool> left_out(plan.blobs.size());
  for (const plan::ExpertLayer& layer : plan::cpu_expert_layers(*plan.program)) {
    for (const program::BlobId blob : layer.blobs()) left_out[blob] = true;
  }
  for (const program::Step& step : plan.program->steps) {  // as weight_ranges() leaves them out
    if (step.op == StepOp::EmbedNgrams) left_out[step.weights[0]] = true;
  }
  std::vector<plan::FileRange> ranges;
  for (size_t i = 0; i < plan.blobs.size(); ++i) {
    if (left_out[i] || plan.program->blobs[i].device != "cpu") continue;
    ranges.push_back({plan.blobs[i].offset, plan.blobs[i].size});
  }
  return ranges;
}

}  // namespace

WarmUp::WarmUp(const plan::PlanFile& plan, Weights weights, std::vector<NodeRun> runs,
               std::vector<int> nodes) {
  const auto go = [this, &plan, ranges = ranges_of(plan.view(), weights), runs = std::move(runs),
                   nodes = std::move(nodes)] {
    constexpr uint64_t kPiece = 64 << 20;
    for (const plan::FileRange& range : ranges) {
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

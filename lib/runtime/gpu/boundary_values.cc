#include "lib/runtime/gpu/boundary_values.h"

#include <algorithm>
#include <map>

#include "lib/plan/plan_hosts.h"
#include "lib/runtime/gpu/skinny_graphs.h"
#include "lib/target/host_device.h"

namespace ktx::runtime {
namespace {

using plan::StepRecord;

class BoundaryFinder {
 public:
  BoundaryFinder(const plan::PlanView& plan, const BoundParts& parts)
      : plan_(plan), parts_(parts), readers_(plan.values.size()), writers_(plan.values.size()) {
    for (uint32_t i = 0; i < plan.steps.size(); ++i) {
      const StepRecord& step = plan.steps[i];
      for (const plan::OperandRecord& in : plan.inputs(step)) {
        if (in.value != plan::kNone) readers_[in.value].push_back(i);
      }
      for (const plan::OperandRecord& out : plan.outputs(step)) {
        if (out.value != plan::kNone) writers_[out.value].push_back(i);
      }
    }
  }

  std::vector<GpuBoundary> run() const {
    std::vector<GpuBoundary> boundaries;
    std::map<std::pair<size_t, size_t>, std::pair<std::string, std::string>> between;  // hosts
    for (uint32_t p = 0; p < parts_.parts.size(); ++p) {
      GpuBoundary boundary{p, "", ""};
      if (!find(parts_.parts[p], boundary)) continue;
      const std::pair hosts{plan::host_of(plan_, boundary.sender),
                            plan::host_of(plan_, boundary.receiver)};
      const std::pair gpus{boundary.sender, boundary.receiver};
      if (between.try_emplace(hosts, gpus).first->second == gpus) boundaries.push_back(boundary);
    }
    return boundaries;
  }

 private:
  bool find(const Part& part, GpuBoundary& boundary) const {
    for (uint32_t i = part.first_step; i < part.first_step + part.step_count; ++i) {
      const StepRecord& step = plan_.steps[i];
      if (step.op != static_cast<uint32_t>(StepOp::Transfer)) return false;
      const uint32_t sent = plan_.inputs(step)[0].value, received = plan_.outputs(step)[0].value;
      if (kept(sent) || kept(received) || writers_[sent].size() != 1 ||
          writers_[received].size() != 1) {
        return false;
      }
      // Sent to this place alone, by a GPU; read by transfers to one GPU.
      const StepRecord& maker = plan_.steps[writers_[sent][0]];
      if (maker.op != static_cast<uint32_t>(StepOp::Transfer)) return false;
      const std::string_view here = plan_.string(maker.device), there = plan_.string(step.device);
      if (target::on_same_host(here, there)) return false;
      if (!is_gpu_of(device_of(plan_.inputs(maker)[0].value), here, boundary.sender)) return false;
      if (readers_[sent].size() != 1 || readers_[received].empty()) return false;
      for (const uint32_t reader : readers_[received]) {
        const StepRecord& use = plan_.steps[reader];
        if (use.op != static_cast<uint32_t>(StepOp::Transfer)) return false;
        if (!is_gpu_of(plan_.string(use.device), there, boundary.receiver)) return false;
      }
    }
    return !boundary.sender.empty() && !boundary.receiver.empty();
  }

  // Of the host of `cpu`, and the one that is `known`, if any is.
  static bool is_gpu_of(std::string_view device, std::string_view cpu, std::string& known) {
    if (target::is_cpu(device) || !target::on_same_host(device, cpu)) return false;
    if (known.empty()) known = device;
    return known == device;
  }

  std::string_view device_of(uint32_t value) const {
    return writers_[value].empty() ? "cpu" : plan_.string(plan_.steps[writers_[value][0]].device);
  }

  bool kept(uint32_t value) const {
    return value == plan_.facts.logits_value ||
           std::ranges::find(plan_.facts.hidden_values, value) != plan_.facts.hidden_values.end();
  }

  const plan::PlanView& plan_;
  const BoundParts& parts_;
  std::vector<std::vector<uint32_t>> readers_, writers_;  // steps, by value
};

}  // namespace

bool is_linked(const Batch& batch) {
  const auto ids = batch.sequence.begin();
  return batch.tokens > SkinnyGraphs::kMostTokens &&
         std::adjacent_find(ids, ids + batch.tokens) != ids + batch.tokens;
}

std::vector<GpuBoundary> gpu_boundaries(const plan::PlanView& plan, const BoundParts& parts) {
  return BoundaryFinder(plan, parts).run();
}

std::vector<BoundaryValue> boundary_values(const plan::PlanView& plan, const BoundParts& parts,
                                           const std::vector<GpuBoundary>& boundaries) {
  std::vector<BoundaryValue> values;
  for (const GpuBoundary& boundary : boundaries) {
    const Part& part = parts.parts[boundary.part];
    for (const StepRecord& step : plan.steps.subspan(part.first_step, part.step_count)) {
      if (target::is_first_host(boundary.sender)) {
        values.push_back({plan.inputs(step)[0].value, boundary.sender});
      } else if (target::is_first_host(boundary.receiver)) {
        values.push_back({plan.outputs(step)[0].value, boundary.receiver});
      }
    }
  }
  return values;
}

}  // namespace ktx::runtime

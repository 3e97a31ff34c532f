#include "lib/runtime/gpu/border_values.h"

#include <algorithm>
#include <map>

#include "lib/plan/plan_hosts.h"
#include "lib/runtime/gpu/few_graphs.h"
#include "lib/target/host_device.h"

namespace ktx::runtime {
namespace {

using plan::StepRecord;

class BorderFinder {
 public:
  BorderFinder(const plan::PlanView& plan, const BoundParts& parts)
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

  std::vector<GpuBorder> run() const {
    std::vector<GpuBorder> borders;
    std::map<std::pair<size_t, size_t>, std::pair<std::string, std::string>> between;  // hosts
    for (uint32_t p = 0; p < parts_.parts.size(); ++p) {
      GpuBorder border{p, "", ""};
      if (!find(parts_.parts[p], border)) continue;
      const std::pair hosts{plan::host_of(plan_, border.sender),
                            plan::host_of(plan_, border.receiver)};
      const std::pair gpus{border.sender, border.receiver};
      if (between.try_emplace(hosts, gpus).first->second == gpus) borders.push_back(border);
    }
    return borders;
  }

 private:
  bool find(const Part& part, GpuBorder& border) const {
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
      if (!is_gpu_of(device_of(plan_.inputs(maker)[0].value), here, border.sender)) return false;
      if (readers_[sent].size() != 1 || readers_[received].empty()) return false;
      for (const uint32_t reader : readers_[received]) {
        const StepRecord& use = plan_.steps[reader];
        if (use.op != static_cast<uint32_t>(StepOp::Transfer)) return false;
        if (!is_gpu_of(plan_.string(use.device), there, border.receiver)) return false;
      }
    }
    return !border.sender.empty() && !border.receiver.empty();
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
  return batch.tokens > FewGraphs::kMostTokens &&
         std::adjacent_find(ids, ids + batch.tokens) != ids + batch.tokens;
}

std::vector<GpuBorder> gpu_borders(const plan::PlanView& plan, const BoundParts& parts) {
  return BorderFinder(plan, parts).run();
}

std::vector<BorderValue> border_values(const plan::PlanView& plan, const BoundParts& parts,
                                       const std::vector<GpuBorder>& borders) {
  std::vector<BorderValue> values;
  for (const GpuBorder& border : borders) {
    const Part& part = parts.parts[border.part];
    for (const StepRecord& step : plan.steps.subspan(part.first_step, part.step_count)) {
      if (target::is_first_host(border.sender)) {
        values.push_back({plan.inputs(step)[0].value, border.sender});
      } else if (target::is_first_host(border.receiver)) {
        values.push_back({plan.outputs(step)[0].value, border.receiver});
      }
    }
  }
  return values;
}

}  // namespace ktx::runtime

#include "lib/runtime/gpu/boundary_values.h"

#include <algorithm>
#include <map>

#include "lib/plan/plan_hosts.h"
#include "lib/program/find_fused.h"
#include "lib/runtime/gpu/skinny_graphs.h"
#include "lib/target/host_device.h"

namespace ktx::runtime {
namespace {

class BoundaryFinder {
 public:
  BoundaryFinder(const plan::PlanView& plan, const BoundParts& parts)
      : plan_(plan), program_(*plan.program), parts_(parts), uses_(program_) {}

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
    for (const program::Step& step : part.steps(program_)) {
      if (step.op != StepOp::Transfer) return false;
      const program::ValueId sent = step.inputs[0].value, received = step.outputs[0].value;
      if (kept(sent) || kept(received) || uses_.writers[sent].size() != 1 ||
          uses_.writers[received].size() != 1) {
        return false;
      }
      // Sent to this place alone, by a GPU; read by transfers to one GPU.
      const program::Step& maker = program_.steps[uses_.writers[sent][0]];
      if (maker.op != StepOp::Transfer) return false;
      if (target::on_same_host(maker.device, step.device)) return false;
      if (!is_gpu_of(device_of(maker.inputs[0].value), maker.device, boundary.sender)) return false;
      if (uses_.readers[sent].size() != 1 || uses_.readers[received].empty()) return false;
      for (const int32_t reader : uses_.readers[received]) {
        const program::Step& use = program_.steps[reader];
        if (use.op != StepOp::Transfer) return false;
        if (!is_gpu_of(use.device, step.device, boundary.receiver)) return false;
      }
    }
    return !boundary.sender.empty() && !boundary.receiver.empty();
  }

  // Whether `device` is a GPU of the host of `cpu`, and the `known` one if one is known.
  static bool is_gpu_of(std::string_view device, std::string_view cpu, std::string& known) {
    if (target::is_cpu(device) || !target::on_same_host(device, cpu)) return false;
    if (known.empty()) known = device;
    return known == device;
  }

  std::string_view device_of(program::ValueId value) const {
    const std::vector<int32_t>& writers = uses_.writers[value];
    return writers.empty() ? "cpu" : std::string_view(program_.steps[writers[0]].device);
  }

  bool kept(program::ValueId value) const {
    const auto number = static_cast<uint32_t>(value);
    return number == plan_.facts.logits_value ||
           std::ranges::find(plan_.facts.hidden_values, number) != plan_.facts.hidden_values.end();
  }

  const plan::PlanView& plan_;
  const program::Program& program_;
  const BoundParts& parts_;
  const program::Uses uses_;
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

uint64_t most_value_bytes(const program::Value& value, const plan::RunShape& shape) {
  const int64_t rows = value.rows == RowKind::Token    ? shape.step_tokens
                       : value.rows == RowKind::Output ? shape.step_outputs
                                                       : 1;
  return static_cast<uint64_t>(rows * program::row_bytes(value));
}

std::vector<BoundaryValue> boundary_values(const plan::PlanView& plan, const BoundParts& parts,
                                           const std::vector<GpuBoundary>& boundaries) {
  std::vector<BoundaryValue> values;
  for (const GpuBoundary& boundary : boundaries) {
    const Part& part = parts.parts[boundary.part];
    for (const program::Step& step : part.steps(*plan.program)) {
      if (target::is_first_host(boundary.sender)) {
        values.push_back({static_cast<uint32_t>(step.inputs[0].value), boundary.sender});
      } else if (target::is_first_host(boundary.receiver)) {
        values.push_back({static_cast<uint32_t>(step.outputs[0].value), boundary.receiver});
      }
    }
  }
  return values;
}

}  // namespace ktx::runtime

#include "lib/plan/expert_memory.h"

#include <algorithm>
#include <set>

namespace ktx::plan {
namespace {

// The step that multiplies what `gate_up` has written; steps.size() where none does.
size_t down_step(const program::Program& program, size_t gate_up) {
  const program::Step& step = program.steps[gate_up];
  for (size_t i = gate_up + 1; i < program.steps.size(); ++i) {
    const program::Step& next = program.steps[i];
    if (next.op == StepOp::ExpertsDown && next.layer == step.layer && next.device == step.device) {
      return i;
    }
  }
  return program.steps.size();
}

bool has_experts(const program::Program& program, program::BlobId blob, int32_t experts) {
  return blob != program::kAbsent && program.blobs[blob].matrices == experts;
}

}  // namespace

std::vector<program::BlobId> ExpertLayer::blobs() const {
  std::vector<program::BlobId> all = gate_up;
  all.push_back(down);
  return all;
}

std::vector<ExpertLayer> cpu_expert_layers(const program::Program& program) {
  std::vector<ExpertLayer> layers;
  std::set<program::BlobId> seen;
  for (size_t i = 0; i < program.steps.size(); ++i) {
    const program::Step& step = program.steps[i];
    if (step.op != StepOp::ExpertsGateUp || step.device != "cpu") continue;
    const size_t down = down_step(program, i);
    if (down == program.steps.size()) continue;
    const auto& attrs = std::get<ExpertsAttrs>(step.attrs);
    ExpertLayer own{step.layer, i, attrs.experts, attrs.top_k, {}, program.steps[down].weights[0]};
    for (const program::BlobId blob : {step.weights[0], step.weights[1]}) {
      if (std::ranges::find(own.gate_up, blob) == own.gate_up.end()) own.gate_up.push_back(blob);
    }
    const std::vector<program::BlobId> blobs = own.blobs();
    const bool whole = std::ranges::all_of(blobs, [&](program::BlobId blob) {
      return has_experts(program, blob, own.experts) && !seen.contains(blob);
    });
    if (!whole) continue;
    seen.insert(blobs.begin(), blobs.end());
    layers.push_back(std::move(own));
  }
  return layers;
}

uint64_t expert_bytes(const program::Program& program, program::BlobId blob) {
  const program::Blob& own = program.blobs[blob];
  return program::blob_bytes(own) / static_cast<uint64_t>(own.matrices);
}

ExpertMemory expert_memory(const program::Program& program) {
  ExpertMemory memory;
  for (const ExpertLayer& layer : cpu_expert_layers(program)) {
    uint64_t room = 0;
    for (const program::BlobId blob : layer.blobs()) {
      room += slice_room(expert_bytes(program, blob));
      memory.bytes += program::blob_bytes(program.blobs[blob]);
    }
    memory.slot_bytes = std::max(memory.slot_bytes, room);
    memory.experts += layer.experts;
    memory.least_slots = std::max<int64_t>(memory.least_slots, layer.experts);
  }
  return memory;
}

}  // namespace ktx::plan

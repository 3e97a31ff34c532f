#include "lib/passes/cost/experts_on_disk.h"

#include <algorithm>
#include <functional>
#include <vector>

#include "lib/plan/expert_memory.h"

namespace ktx::passes {
namespace {

struct Chosen {
  double share = 0;  // of the tokens that choose the expert
  double bytes = 0;  // of the expert
};

// Adds the experts of a layer. A profile counts those of the whole layer.
void add_layer(const program::Program& program, const plan::ExpertLayer& layer,
               const plan::ExpertProfile* profile, std::vector<Chosen>& all) {
  double bytes = 0;
  for (const program::BlobId blob : layer.blobs()) {
    bytes += static_cast<double>(plan::expert_bytes(program, blob));
  }
  const program::Step& step = program.steps[layer.step];
  const bool whole = step.use >= 1;
  for (int32_t e = 0; e < layer.experts; ++e) {
    const double use = whole ? plan::expert_use(profile, layer.layer, {&e, 1}, layer.experts)
                             : double{step.use} / layer.experts;
    all.push_back({std::min(1.0, use * layer.top_k), bytes});
  }
}

}  // namespace

ExpertsOnDisk experts_on_disk(const program::Program& program, const plan::ExpertProfile* profile,
                              uint64_t room) {
  const plan::ExpertMemory memory = plan::expert_memory(program);
  ExpertsOnDisk disk;
  disk.experts = memory.experts;
  disk.slot_bytes = memory.slot_bytes;
  disk.least_bytes = memory.least_bytes();
  if (memory.experts == 0 || room < memory.least_bytes()) return disk;
  disk.slots = std::min<int64_t>(memory.experts, static_cast<int64_t>(room / memory.slot_bytes));
  std::vector<Chosen> all;
  for (const plan::ExpertLayer& layer : plan::cpu_expert_layers(program)) {
    add_layer(program, layer, profile, all);
  }
  std::ranges::stable_sort(all, std::greater(), &Chosen::share);
  double chosen = 0, there = 0;
  for (size_t i = 0; i < all.size(); ++i) {
    const bool in_memory = static_cast<int64_t>(i) < disk.slots;
    chosen += all[i].share;
    (in_memory ? there : disk.token_bytes) += all[i].share * (in_memory ? 1 : all[i].bytes);
    disk.chunk_bytes += in_memory ? 0 : all[i].bytes;
  }
  disk.hit_rate = chosen > 0 ? there / chosen : 0;
  return disk;
}

}  // namespace ktx::passes

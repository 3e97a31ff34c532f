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

// How many of a layer's experts are guests of GPUs (lib/runtime/experts/expert_guests.h).
int32_t guests_of(const program::Program& program, int32_t layer) {
  int32_t guests = 0;
  for (const program::Step& step : program.steps) {
    const auto* const group = std::get_if<GroupExpertsAttrs>(&step.attrs);
    if (group && group->guests != 0 && step.layer == layer && step.device != "cpu") {
      guests += group->experts;
    }
  }
  return guests;
}

// Adds the experts of a layer. A profile counts those of the whole layer; the most used ones are
// guests, if it has any, and need no memory.
void add_layer(const program::Program& program, const plan::ExpertLayer& layer,
               const plan::ExpertProfile* profile, std::vector<Chosen>& all) {
  double bytes = 0;
  for (const program::BlobId blob : layer.blobs()) {
    bytes += static_cast<double>(plan::expert_bytes(program, blob));
  }
  const program::Step& step = program.steps[layer.step];
  const int32_t guests = guests_of(program, layer.layer);
  const bool whole = step.use >= 1 || guests > 0;
  const std::vector<int32_t> by_use = plan::experts_by_use(profile, layer.layer, layer.experts);
  for (const int32_t e : std::span(by_use).subspan(std::min(guests, layer.experts))) {
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
    const bool stays = static_cast<int64_t>(i) < disk.slots - 2 * memory.least_slots;
    disk.chunk_bytes += stays || disk.slots == memory.experts ? 0 : all[i].bytes;
  }
  disk.hit_rate = chosen > 0 ? there / chosen : 0;
  return disk;
}

}  // namespace ktx::passes

#include "lib/runtime/experts/expert_room.h"

#include <fmt/format.h>

#include <algorithm>

#include "lib/plan/device_memory.h"
#include "lib/plan/expert_memory.h"
#include "lib/plan/plan_hosts.h"
#include "lib/support/strings.h"

namespace ktx::runtime {
namespace {

// Why a plan's experts cannot come from disk; null: they can.
const char* why_not(const plan::PlanView& plan, const EngineOptions& options,
                    const plan::ExpertMemory& memory) {
  if (memory.experts == 0) return "the plan has no routed experts on the CPU";
  if (plan::has_hosts(plan)) return "a plan for several hosts maps its experts";
  if (options.drafter) return "a drafter within a plan maps its experts";
  if (options.huge_pages) return "--huge-pages copies all experts";
  return nullptr;
}

// What is left beside all else, for experts.
uint64_t room_beside(const Sizes& sizes, const plan::ExpertMemory& memory, uint64_t available) {
  const uint64_t others = sizes.memory.total_bytes - memory.bytes;
  const uint64_t room = most_of(available);
  return room - std::min(room, others);
}

Status lengthen_chunk(const plan::PlanView& plan, EngineOptions options, uint64_t available,
                      const plan::ExpertMemory& memory, const FitsGpus& fits_gpus, Sizes& sizes) {
  if (options.chunk_tokens || plan.facts.encoder) return {};
  for (const int64_t chunk : plan::kDiskChunks) {
    if (chunk <= sizes.shape.step_tokens) return {};
    options.chunk_tokens = chunk;
    Sizes longer = KTX_TRY(sizes_of_run(plan, options));
    const uint64_t room = room_beside(longer, memory, available);
    if (room < memory.least_bytes() || longer.memory.arena_bytes > room / 8) continue;
    if (!KTX_TRY(fits_gpus(options))) continue;
    sizes = std::move(longer);
    return {};
  }
  return {};
}

void keep_slots(const plan::ExpertMemory& memory, uint64_t bytes, Sizes& sizes) {
  sizes.expert_slots =
      std::min<int64_t>(memory.experts, static_cast<int64_t>(bytes / memory.slot_bytes));
  sizes.expert_bytes = static_cast<uint64_t>(sizes.expert_slots) * memory.slot_bytes;
  for (uint64_t* sum : {&sizes.memory.weight_bytes, &sizes.memory.total_bytes}) {
    *sum = *sum - memory.bytes + sizes.expert_bytes;
  }
  sizes.notes.push_back(fmt::format("{} of {} experts in main memory ({}), the others on disk",
                                    sizes.expert_slots, memory.experts,
                                    human_bytes(sizes.expert_bytes)));
}

}  // namespace

Status choose_expert_slots(const plan::PlanView& plan, const EngineOptions& options,
                           std::optional<uint64_t> available, const FitsGpus& fits_gpus,
                           Sizes& sizes) {
  const plan::ExpertMemory memory = plan::expert_memory(*plan.program);
  const char* const why = why_not(plan, options, memory);
  const std::optional<int64_t>& asked = options.expert_memory_bytes;
  if (asked && *asked > 0 && why) {
    return Error{fmt::format("--expert-memory: {}; leave it out", why)};
  }
  if (why || (asked && *asked == 0)) return {};
  const auto least = [&](std::string_view what, uint64_t bytes) {
    return fmt::format("{} {} for experts is less than one layer's {} experts take, {}", what,
                       human_bytes(bytes), memory.least_slots, human_bytes(memory.least_bytes()));
  };
  if (asked) {
    const auto bytes = static_cast<uint64_t>(*asked);
    if (bytes < memory.least_bytes()) return Error{least("--expert-memory:", bytes)};
    const uint64_t others = sizes.memory.total_bytes - memory.bytes;
    KTX_TRY(lengthen_chunk(plan, options, std::max(available.value_or(0), 2 * (bytes + others)),
                           memory, fits_gpus, sizes));
    keep_slots(memory, bytes, sizes);
    return {};
  }
  if (!available || sizes.memory.total_bytes <= *available) return {};
  if (room_beside(sizes, memory, *available) < memory.least_bytes()) {
    sizes.notes.push_back(least("what is free,", room_beside(sizes, memory, *available)));
    return {};
  }
  KTX_TRY(lengthen_chunk(plan, options, *available, memory, fits_gpus, sizes));
  keep_slots(memory, room_beside(sizes, memory, *available), sizes);
  return {};
}

}  // namespace ktx::runtime

#include "lib/runtime/cache/state_pool.h"

#include <cstdlib>

#include "lib/support/result.h"

namespace ktx::runtime {

void StatePool::Free::operator()(float* floats) const {
  std::free(floats);
}

StatePool::StatePool(int64_t floats, int64_t slots) : floats_(floats) {
  memory_.resize(static_cast<size_t>(slots));
  users_.resize(static_cast<size_t>(slots));
  for (int64_t slot = slots - 1; slot >= 0; --slot) free_.push_back(static_cast<StateSlot>(slot));
}

StateSlot StatePool::take() {
  if (free_.empty() && !(reclaim_ && reclaim_())) return kNoState;
  KTX_ASSERT(!free_.empty());
  const StateSlot slot = free_.back();
  if (!give_memory(slot)) return kNoState;
  free_.pop_back();
  users_[static_cast<size_t>(slot)] = 1;
  return slot;
}

bool StatePool::give_memory(StateSlot slot) {
  auto& memory = memory_[static_cast<size_t>(slot)];
  // (Sizes are whole cache lines.)
  if (!memory && floats_ > 0) {
    memory.reset(
        static_cast<float*>(std::aligned_alloc(64, static_cast<size_t>(floats_) * sizeof(float))));
  }
  return memory || floats_ == 0;
}

void StatePool::release(StateSlot slot) {
  int32_t& users = users_[static_cast<size_t>(slot)];
  KTX_ASSERT(users > 0);
  if (--users == 0) free_.push_back(slot);
}

}  // namespace ktx::runtime

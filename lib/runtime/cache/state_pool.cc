#include "lib/runtime/cache/state_pool.h"

#include <cstdlib>
#include <utility>

namespace ktx::runtime {

void FreeStates::operator()(float* floats) const {
  std::free(floats);
}

StateBuffer StatePool::take() {
  if (!free_.empty()) {
    StateBuffer buffer = std::move(free_.back());
    free_.pop_back();
    return buffer;
  }
  // (Sizes are whole cache lines.)
  return StateBuffer(
      static_cast<float*>(std::aligned_alloc(64, static_cast<size_t>(floats_) * sizeof(float))));
}

void StatePool::give_back(StateBuffer buffer) {
  if (buffer && static_cast<int64_t>(free_.size()) < kept_) free_.push_back(std::move(buffer));
}

void StatePool::release(SequenceStates& states) {
  give_back(std::move(states.now));
  give_back(std::move(states.next));
  states.before = -1;
}

bool StatePool::prepare(SequenceStates& states) {
  states.before = -1;
  if (!states.next) states.next = take();
  return states.next != nullptr;
}

void StatePool::advance(SequenceStates& states, int64_t length) const {
  std::swap(states.now, states.next);
  states.before = states.next ? length : -1;
}

bool StatePool::truncate(SequenceStates& states, int64_t now, int64_t length) {
  if (length == now) return true;
  if (length > 0 && states.next && length == states.before) {
    std::swap(states.now, states.next);
    states.before = -1;
    return true;
  }
  release(states);
  return length == 0;
}

}  // namespace ktx::runtime

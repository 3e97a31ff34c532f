// The fixed-size states of texts (plan/state_layout.h): the third kind of what a sequence keeps,
// beside blocks of keys and values and of windows.
//
// A slot holds all states of a text at one place. A pass reads the slot of the place where it
// begins and writes others, so that one that fails changes nothing; a slot that was written is
// never written again, and may be in several sequences and in the prefix cache (a snapshot). It is
// free when its last user is gone, like a block (kv_cache.h). States cannot be cut: a text goes on
// only from a place that has a slot.
//
//   marks of a sequence of 700 tokens:   [512, slot 3]  [699, slot 9]  [700, slot 4]
//
// Not thread-safe: belongs to the thread that runs the engine.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

namespace ktx::runtime {

using StateSlot = int32_t;
inline constexpr StateSlot kNoState = -1;

// The states of a text after `position` tokens.
struct StateMark {
  int64_t position = 0;
  StateSlot slot = kNoState;
  bool snapshot = false;  // for the prefix cache
};

class StatePool {
 public:
  StatePool() = default;
  // No slots: the model has no states. `floats` of a slot in main memory, 0: all states are on
  // GPUs, which keep them under the same numbers. Memory is taken when a slot is first used.
  StatePool(int64_t floats, int64_t slots);

  bool has_states() const { return !users_.empty(); }
  int64_t floats() const { return floats_; }
  int64_t slots() const { return static_cast<int64_t>(users_.size()); }
  int64_t free_slots() const { return static_cast<int64_t>(free_.size()); }

  // Asked when slots run out: gives a snapshot back, or says false.
  void set_reclaim(std::function<bool()> reclaim) { reclaim_ = std::move(reclaim); }

  // A slot of the caller's own, not zeroed; kNoState when there is none, or no memory for it.
  StateSlot take();
  // One more user of a slot, and one less.
  void share(StateSlot slot) { ++users_[static_cast<size_t>(slot)]; }
  void release(StateSlot slot);
  int32_t users(StateSlot slot) const { return users_[static_cast<size_t>(slot)]; }

  // Memory for a slot that another host has taken; false when there is none.
  bool give_memory(StateSlot slot);

  // Null where all states are on GPUs.
  float* data(StateSlot slot) const { return memory_[static_cast<size_t>(slot)].get(); }
  std::span<std::byte> bytes(StateSlot slot) const {
    return {reinterpret_cast<std::byte*>(data(slot)), static_cast<size_t>(floats_) * sizeof(float)};
  }

 private:
  struct Free {
    void operator()(float* floats) const;
  };
  int64_t floats_ = 0;
  std::vector<std::unique_ptr<float[], Free>> memory_;  // by slot; null: never used
  std::vector<int32_t> users_;
  std::vector<StateSlot> free_;  // taken from the back
  std::function<bool()> reclaim_;
};

}  // namespace ktx::runtime

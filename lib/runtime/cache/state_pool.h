// The fixed-size states of sequences (plan/state_layout.h): the third kind of what a sequence
// keeps, beside blocks of keys and values and windows.
//
// A sequence has two buffers: the states behind its last token, and where a pass writes the next
// ones. A pass that fails or is stopped leaves the first as it was, and the two are exchanged when
// it has ended well. States cannot be cut: a text goes on from where it ends, or, one pass back,
// from where it ended before; from any other place it is computed again.
//
// Not thread-safe: belongs to the thread that runs the engine.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace ktx::runtime {

struct FreeStates {
  void operator()(float* floats) const;
};
using StateBuffer = std::unique_ptr<float[], FreeStates>;

// Those of one sequence. Empty buffers: of a text of no tokens.
struct SequenceStates {
  StateBuffer now;      // behind the last token
  StateBuffer next;     // of the pass at hand, or what `now` was before the last one
  int64_t before = -1;  // the length of the text when `next` was its state; -1: not known
};

class StatePool {
 public:
  StatePool() = default;
  // `floats` of a sequence, 0: the model has no states. `kept`: how many free buffers stay.
  StatePool(int64_t floats, int64_t kept) : floats_(floats), kept_(kept) {}

  bool has_states() const { return floats_ > 0; }
  int64_t floats() const { return floats_; }

  // A buffer of the pool or of the system; null: there is no memory. Not zeroed.
  StateBuffer take();
  void give_back(StateBuffer buffer);
  void release(SequenceStates& states);

  // Where a pass writes; false: there is no memory.
  bool prepare(SequenceStates& states);
  // After a pass that ended well, over a text of `length` tokens before.
  void advance(SequenceStates& states, int64_t length) const;
  // Goes back to `length` tokens of `now`; false: these states are not there, and none are now.
  bool truncate(SequenceStates& states, int64_t now, int64_t length);

  std::span<std::byte> bytes(const StateBuffer& buffer) const {
    return {reinterpret_cast<std::byte*>(buffer.get()),
            static_cast<size_t>(floats_) * sizeof(float)};
  }

 private:
  int64_t floats_ = 0;
  int64_t kept_ = 0;
  std::vector<StateBuffer> free_;
};

}  // namespace ktx::runtime

// Lets the models of one process compute in turn. Their threads share the cores, and each waits
// for the others at every barrier: two steps at once would take many times as long as two in turn.
//
//   const StepTurns::Turn turn(turns);   // waits; null: does not
//
// First come, first served, so that a long prompt of one model delays an answer of another by a
// step, not by all of it.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>

namespace ktx::runtime {

class StepTurns {
 public:
  class Turn {
   public:
    explicit Turn(StepTurns* turns) : turns_(turns) {
      if (turns_ == nullptr) return;
      std::unique_lock lock(turns_->mutex_);
      const uint64_t mine = turns_->last_++;
      turns_->next_.wait(lock, [&] { return turns_->now_ == mine; });
    }
    ~Turn() {
      if (turns_ == nullptr) return;
      {
        const std::lock_guard lock(turns_->mutex_);
        ++turns_->now_;
      }
      turns_->next_.notify_all();
    }
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;

   private:
    StepTurns* turns_;
  };

 private:
  std::mutex mutex_;
  std::condition_variable next_;
  uint64_t last_ = 0, now_ = 0;
};

}  // namespace ktx::runtime

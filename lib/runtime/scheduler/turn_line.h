// Turns at something that few can use at once: a thread blocks until its turn comes.
//
//   TurnLine line(1);
//   const std::optional<TurnLine::Turn> turn = line.wait(share, [&] { return !client_left; });
//   if (!turn) return ...;   // no longer wanted
//   ...                      // until `turn` is gone
//
// Keys share turns as they share the batch (key_shares.h), and each turn moves the meter of its key
// by a turn of theirs: keys go round, however many of their requests wait. A key's first request is
// called before the second of any other key.
//
// Thread-safe. It outlives its turns.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <list>
#include <mutex>
#include <optional>
#include <utility>

#include "lib/runtime/scheduler/key_shares.h"

namespace ktx::runtime {

class TurnLine {
  struct Place {
    ShareOf share;
    uint64_t id = 0;
    bool called = false;
  };
  using Places = std::list<Place>;

 public:
  // `most_of_key`: turns that a key has at once, at most; 0: all.
  explicit TurnLine(int64_t places, int64_t most_of_key = 0)
      : places_(places), shares_(most_of_key) {}
  TurnLine(const TurnLine&) = delete;
  TurnLine& operator=(const TurnLine&) = delete;

  class Turn {
   public:
    Turn(Turn&& other) noexcept
        : line_(std::exchange(other.line_, nullptr)), place_(other.place_) {}
    Turn& operator=(Turn&&) = delete;
    ~Turn() {
      if (line_ != nullptr) line_->leave(place_);
    }

   private:
    friend class TurnLine;
    Turn(TurnLine& line, Places::iterator place) : line_(&line), place_(place) {}
    TurnLine* line_;
    Places::iterator place_;
  };

  // `wanted` is called every 100 ms; nullopt: it returned false. Null: it is always wanted.
  std::optional<Turn> wait(const ShareOf& share, const std::function<bool()>& wanted = nullptr);
  int64_t waiting() const;

 private:
  void leave(Places::iterator place);
  void call_next();

  const int64_t places_;
  mutable std::mutex mutex_;  // of what follows
  std::condition_variable called_;
  Places waiting_, running_;
  KeyShares shares_;
  uint64_t last_id_ = 0;
};

}  // namespace ktx::runtime

// What the pulls of one server share: turns, and the room that they have been promised.
//
//   const auto turn = shared.take("hf.co/owner/name", stop, [] { say("waiting"); });
//   if (!turn) return;                     // `stop` was set meanwhile
//   shared.at_end("hf.co/owner/name", remove_file);
//
// One pull at a time has the turn of a name. Names of one repository may stand for one file
// ("hf:o/n" and "hf:o/n:Q4_K_M"): what the first has fetched is there for the next one, and goes
// when no pull of that name is left. Thread-safe; a SharedPulls outlives its turns.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace ktx::tools {

class SharedPulls {
 public:
  using Turn = std::shared_ptr<void>;  // until the last copy has ended
  // Null once `stop` is set. `waits` is called where another one has the turn.
  Turn take(const std::string& name, const std::atomic<bool>& stop,
            const std::function<void()>& waits);
  // Called, in this order, when no pull has the turn of that name or waits for it. With a turn.
  void at_end(const std::string& name, std::function<void()> call);

  // Replaces a promise by one of `bytes`, where these and what others were promised are free.
  // Returns false, and the promise stays, where they are not.
  bool promise(uint64_t& promised, uint64_t bytes, uint64_t free);

 private:
  struct Queue {
    int pulls = 0;  // with the one whose turn it is
    bool taken = false;
    std::vector<std::function<void()>> at_end;
  };
  void leave(const std::string& name);

  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, Queue> queues_;
  uint64_t promised_ = 0;  // to all
};

}  // namespace ktx::tools

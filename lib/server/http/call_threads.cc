#include "lib/server/http/call_threads.h"

#include <utility>

namespace ktx::server {

void CallThreads::run(std::function<void()> call) {
  std::unique_lock lock(mutex_);
  join_ended(lock);
  if (closed_) return;
  const Threads::iterator place = running_.emplace(running_.end());
  try {
    *place = std::thread([this, place, call = std::move(call)]() mutable {
      call();
      call = nullptr;  // what it holds goes before the thread counts as ended
      const std::lock_guard end(mutex_);
      ended_.splice(ended_.end(), running_, place);
      one_ended_.notify_all();
    });
  } catch (...) {
    running_.erase(place);
    throw;
  }
}

void CallThreads::join() {
  std::unique_lock lock(mutex_);
  closed_ = true;
  one_ended_.wait(lock, [&] { return running_.empty(); });
  join_ended(lock);
}

void CallThreads::join_ended(std::unique_lock<std::mutex>& lock) {
  Threads ended = std::exchange(ended_, {});
  lock.unlock();
  for (std::thread& thread : ended) thread.join();
  lock.lock();
}

}  // namespace ktx::server

#include "tools/ktx-run/shared_pulls.h"

#include <chrono>
#include <utility>

namespace ktx::tools {

SharedPulls::Turn SharedPulls::take(const std::string& name, const std::atomic<bool>& stop,
                                    const std::function<void()>& waits) {
  std::unique_lock lock(mutex_);
  Queue& queue = queues_[name];
  ++queue.pulls;
  if (queue.taken) {
    lock.unlock();
    waits();
    lock.lock();
  }
  // Nothing wakes this when `stop` is set.
  while (queue.taken && !stop) changed_.wait_for(lock, std::chrono::milliseconds(100));
  if (stop) {
    leave(name);
    return nullptr;
  }
  queue.taken = true;
  return {this, [name](SharedPulls* shared) {
            const std::lock_guard held(shared->mutex_);
            shared->queues_[name].taken = false;
            shared->leave(name);
          }};
}

void SharedPulls::at_end(const std::string& name, std::function<void()> call) {
  const std::lock_guard lock(mutex_);
  queues_[name].at_end.push_back(std::move(call));
}

// The mutex is held, so that the next pull of that name begins behind the calls.
void SharedPulls::leave(const std::string& name) {
  const auto found = queues_.find(name);
  if (--found->second.pulls == 0) {
    for (const auto& call : found->second.at_end) call();
    queues_.erase(found);
  }
  changed_.notify_all();
}

bool SharedPulls::promise(uint64_t& promised, uint64_t bytes, uint64_t free) {
  const std::lock_guard lock(mutex_);
  const uint64_t others = promised_ - promised;
  if (bytes > 0 && (others > free || bytes > free - others)) return false;
  promised_ = others + bytes;
  promised = bytes;
  return true;
}

}  // namespace ktx::tools

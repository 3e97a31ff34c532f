#include "lib/runtime/scheduler/filter_worker.h"

#include <utility>

namespace ktx::runtime {

FilterWorker::~FilterWorker() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  thread_.join();
}

void FilterWorker::start(std::vector<TokenFilter*> filters) {
  if (filters.empty()) return;
  {
    const std::lock_guard lock(mutex_);
    todo_ = std::move(filters);
    working_ = true;
  }
  wake_.notify_all();
}

void FilterWorker::wait() {
  std::unique_lock lock(mutex_);
  done_.wait(lock, [&] { return !working_; });
}

void FilterWorker::loop() {
  std::unique_lock lock(mutex_);
  for (;;) {
    wake_.wait(lock, [&] { return stopping_ || working_; });
    if (!working_) return;
    const std::vector<TokenFilter*> todo = std::exchange(todo_, {});
    lock.unlock();
    for (TokenFilter* filter : todo) {
      try {
        filter->prepare();
      } catch (...) {
        // Without preparation it does all work in allowed(), where an error reaches its request.
      }
    }
    lock.lock();
    working_ = false;
    done_.notify_all();
  }
}

}  // namespace ktx::runtime

// Threads that each wait for one read at a time (direct_reader.h).
#include <cerrno>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

#include "lib/runtime/experts/direct_reader.h"
#include "lib/support/signal_block.h"

namespace ktx::runtime {
namespace {

// Reads in flight that a disk needs for its full rate: NVMe reaches it with 8 to 16 of 1 MiB.
constexpr int kThreads = 16;

class ThreadReader final : public DirectReader {
 public:
  explicit ThreadReader(const OpenedFile& file) : file_(file) {
    const SignalBlock block;
    for (int i = 0; i < kThreads; ++i) {
      try {
        threads_.emplace_back([this] { work(); });
      } catch (const std::system_error&) {
        break;
      }
    }
  }
  ~ThreadReader() override {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
      waiting_.clear();
    }
    changed_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }

  void read(std::span<const DirectRead> reads) override {
    if (threads_.empty()) {  // the system refused all
      for (const DirectRead& read : reads) file_.done(read.ticket, read_by_call(file_, read));
      return;
    }
    {
      const std::lock_guard lock(mutex_);
      waiting_.insert(waiting_.end(), reads.begin(), reads.end());
    }
    changed_.notify_all();
  }
  void drop() override {
    std::deque<DirectRead> dropped;
    {
      const std::lock_guard lock(mutex_);
      dropped.swap(waiting_);
    }
    for (const DirectRead& read : dropped) file_.done(read.ticket, ECANCELED);
  }
  std::string_view name() const override { return "threads"; }

 private:
  void work() {
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [&] { return stopping_ || !waiting_.empty(); });
      if (waiting_.empty()) return;
      const DirectRead read = waiting_.front();
      waiting_.pop_front();
      lock.unlock();
      file_.done(read.ticket, read_by_call(file_, read));
      lock.lock();
    }
  }

  const OpenedFile file_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<DirectRead> waiting_;
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace

std::unique_ptr<DirectReader> open_thread_reader(const OpenedFile& file) {
  return std::make_unique<ThreadReader>(file);
}

}  // namespace ktx::runtime

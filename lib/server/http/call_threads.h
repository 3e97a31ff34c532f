// Threads for calls that wait long, one for each: a call that waits keeps no worker from others.
//
//   CallThreads threads;
//   threads.run([...] { ... });   // from any thread; the caller limits how many there are
//   threads.join();               // all have ended, and none begins any more
#pragma once

#include <condition_variable>
#include <functional>
#include <list>
#include <mutex>
#include <thread>

namespace ktx::server {

class CallThreads {
 public:
  CallThreads() = default;
  ~CallThreads() { join(); }
  CallThreads(const CallThreads&) = delete;
  CallThreads& operator=(const CallThreads&) = delete;

  // Drops the call after join(). Throws std::system_error where there can be no more threads.
  void run(std::function<void()> call);
  // Not from a call.
  void join();

 private:
  using Threads = std::list<std::thread>;
  void join_ended(std::unique_lock<std::mutex>& lock);

  std::mutex mutex_;
  std::condition_variable one_ended_;
  Threads running_, ended_;
  bool closed_ = false;
};

}  // namespace ktx::server

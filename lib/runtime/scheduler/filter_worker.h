// Prepares the token masks of a step on a separate thread while the step is computed: a grammar
// can compute its mask as soon as the last token is known.
//
//   worker.start(filters);  engine.forward(items);  worker.wait();  filter->allowed();
#pragma once

#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

#include "lib/runtime/sampling/token_filter.h"

namespace ktx::runtime {

class FilterWorker {
 public:
  FilterWorker() : thread_([this] { loop(); }) {}
  ~FilterWorker();
  FilterWorker(const FilterWorker&) = delete;
  FilterWorker& operator=(const FilterWorker&) = delete;

  // Each is used by this thread alone until wait() returns.
  void start(std::vector<TokenFilter*> filters);
  void wait();

 private:
  void loop();

  std::mutex mutex_;
  std::condition_variable wake_, done_;
  std::vector<TokenFilter*> todo_;
  bool working_ = false;
  bool stopping_ = false;
  std::thread thread_;  // last: starts when all else is there
};

}  // namespace ktx::runtime

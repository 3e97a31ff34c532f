// Asks the system to read the weights ahead, in the background, so that a plan that
// is not in the page cache streams at the disk's speed instead of page by page.
#pragma once

#include <atomic>
#include <span>
#include <thread>

#include "lib/plan/plan_reader.h"

namespace ktx::runtime {

class WarmUp {
 public:
  // Starts a thread that goes through the segments which steps read. `plan` must
  // outlive this object.
  explicit WarmUp(const plan::PlanFile& plan);
  ~WarmUp();  // stops at the next 64 MiB
  WarmUp(const WarmUp&) = delete;
  WarmUp& operator=(const WarmUp&) = delete;

 private:
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

}  // namespace ktx::runtime

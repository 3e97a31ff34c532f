// Pins the calling thread to one CPU for the lifetime of the object.
//
//   const CpuPin pin(7);     // -1: does nothing
//
// A CPU that does not exist or may not be used is not an error: the thread then keeps running
// where it did.
#pragma once

#include <sched.h>

#include <vector>

namespace ktx {

class CpuPin {
 public:
  explicit CpuPin(int cpu) {
    if (cpu < 0 || cpu >= kCpus) return;
    before_.resize(kCpus / CPU_SETSIZE);
    std::vector<cpu_set_t> only(before_.size());
    CPU_SET_S(static_cast<size_t>(cpu), bytes(), only.data());
    if (sched_getaffinity(0, bytes(), before_.data()) < 0 ||
        sched_setaffinity(0, bytes(), only.data()) != 0) {
      before_.clear();
    }
  }
  ~CpuPin() {
    if (!before_.empty()) sched_setaffinity(0, bytes(), before_.data());
  }
  CpuPin(const CpuPin&) = delete;
  CpuPin& operator=(const CpuPin&) = delete;

 private:
  static constexpr int kCpus = 65536;  // enough for every kernel configuration
  size_t bytes() const { return before_.size() * sizeof(cpu_set_t); }
  std::vector<cpu_set_t> before_;
};

}  // namespace ktx

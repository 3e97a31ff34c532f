// What ran when in some passes: a lane for each thread of the CPU, for each GPU's queue and for the
// copies beside it. For `ktx-run bench --trace`.
//
//   ForwardTrace trace;
//   engine->runner().set_trace(&trace);
//   ... forward() ...
//   engine->runner().set_trace(nullptr);
//
//   host           | queue cuda:0 | wait | experts of layer 3          | queue ...
//   cpu thread 0                         | gate, up     | down         |
//   cuda:0 queue     | layer 3: attention ...  |shared experts|
//   cuda:0 copies
//
// Without a trace nothing is measured. Each lane is written by one thread at a time; spans of a
// lane follow one another.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "lib/plan/plan_format.h"
#include "lib/support/timer.h"

namespace ktx::runtime {

struct TraceSpan {
  double begin = 0, end = 0;    // seconds since the trace was made
  uint32_t step = plan::kNone;  // the first of the plan's steps that it does; kNone: none
  uint32_t steps = 0;           // how many
  const char* what = nullptr;   // "wait"; null: the step's op
  int64_t tokens = 0;           // of a pass
  uint64_t bytes = 0;           // of a copy
};

struct TraceLane {
  std::string device;  // "cpu", "cuda:0"
  std::string name;    // "thread 3", "queue", "copies"
  std::vector<TraceSpan> spans;
};

class ForwardTrace {
 public:
  double now() const { return timer_.seconds(); }
  // The lane of this name, made where there is none; lives as long as the trace.
  TraceLane* lane(const std::string& device, const std::string& name) {
    for (TraceLane& lane : lanes_) {
      if (lane.device == device && lane.name == name) return &lane;
    }
    return &lanes_.emplace_back(TraceLane{device, name, {}});
  }
  const std::deque<TraceLane>& lanes() const { return lanes_; }

 private:
  Timer timer_;
  std::deque<TraceLane> lanes_;
};

}  // namespace ktx::runtime

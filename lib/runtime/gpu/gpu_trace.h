// The lanes of a GPU in a trace (engine/forward_trace.h), from time stamps in its queues:
//
//   KTX_TRY(trace.begin_forward());
//   KTX_TRY(trace.begin(GpuLane::Queue));  ... launch ...  KTX_TRY(trace.end(GpuLane::Queue,
//   {...})); KTX_TRY(trace.end_forward());             // after Gpu::finish()
//
// Times of the GPU and of the host are compared once a pass, while both are idle: they agree to
// some 10 us.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lib/runtime/engine/forward_trace.h"
#include "lib/runtime/gpu/gpu.h"
#include "lib/support/result.h"

namespace ktx::runtime {

class GpuTrace {
 public:
  GpuTrace(Gpu& gpu, ForwardTrace& trace, const std::string& device);

  Status begin_forward();
  Status begin(GpuLane lane);
  // Ends the last begin() of the lane; the times of `span` are set by end_forward().
  Status end(GpuLane lane, const TraceSpan& span);
  Status end_forward();

 private:
  struct Open {
    GpuLane lane;
    int64_t begin = 0, end = 0;  // stamps
    TraceSpan span;
  };
  Gpu& gpu_;
  ForwardTrace& trace_;
  TraceLane* lanes_[2];     // by GpuLane
  int64_t begins_[2] = {};  // stamps
  std::vector<Open> spans_;
  int64_t stamps_ = 0;
  double start_ = 0;  // of stamp 0, by the trace's clock
};

}  // namespace ktx::runtime

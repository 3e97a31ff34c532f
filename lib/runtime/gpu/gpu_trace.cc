#include "lib/runtime/gpu/gpu_trace.h"

namespace ktx::runtime {

GpuTrace::GpuTrace(Gpu& gpu, ForwardTrace& trace, const std::string& device)
    : gpu_(gpu), trace_(trace), lanes_{trace.lane(device, "queue"), trace.lane(device, "copies")} {}

Status GpuTrace::begin_forward() {
  spans_.clear();
  stamps_ = 0;
  KTX_TRY(gpu_.finish());
  KTX_TRY(gpu_.stamp(stamps_++, GpuLane::Queue));
  KTX_TRY(gpu_.finish());
  start_ = trace_.now();
  return {};
}

Status GpuTrace::begin(GpuLane lane) {
  begins_[static_cast<int>(lane)] = stamps_;
  return gpu_.stamp(stamps_++, lane);
}

Status GpuTrace::end(GpuLane lane, const TraceSpan& span) {
  spans_.push_back({lane, begins_[static_cast<int>(lane)], stamps_, span});
  return gpu_.stamp(stamps_++, lane);
}

Status GpuTrace::end_forward() {
  for (Open& open : spans_) {
    open.span.begin = start_ + KTX_TRY(gpu_.stamp_seconds(open.begin));
    open.span.end = start_ + KTX_TRY(gpu_.stamp_seconds(open.end));
    lanes_[static_cast<int>(open.lane)]->spans.push_back(open.span);
  }
  spans_.clear();
  return {};
}

}  // namespace ktx::runtime

#include "lib/runtime/gpu/plan_parts.h"

#include <algorithm>

#include "lib/plan/device_memory.h"

namespace ktx::runtime {
namespace {

bool is_transfer(const plan::StepRecord& step) {
  return step.op == static_cast<uint32_t>(StepOp::Transfer);
}

class Cutter {
 public:
  explicit Cutter(const plan::PlanView& plan) : plan_(plan), buffers_(plan::buffer_devices(plan)) {
    const std::vector<std::string> devices = plan::plan_devices(plan);
    out_.gpus.assign(devices.begin() + 1, devices.end());
  }

  PlanParts run() {
    for (uint32_t i = 0; i < plan_.steps.size(); ++i) add(i);
    find_waits();
    return std::move(out_);
  }

 private:
  int gpu(std::string_view device) const {
    const auto found = std::find(out_.gpus.begin(), out_.gpus.end(), device);
    return found == out_.gpus.end() ? -1 : static_cast<int>(found - out_.gpus.begin());
  }

  void add(uint32_t index) {
    const plan::StepRecord& step = plan_.steps[index];
    Part next;
    next.device = gpu(plan_.string(step.device));
    next.kind = next.device < 0 ? Part::Kind::Cpu : Part::Kind::Gpu;
    bool to_cpu = false;
    if (is_transfer(step)) {
      const uint32_t value = plan_.inputs(step)[0].value;
      const int from = gpu(buffers_[plan_.values[value].buffer]);
      to_cpu = next.device < 0;
      if (to_cpu && index + 1 == plan_.steps.size() &&
          plan_.outputs(step)[0].value == plan_.facts.logits_value) {
        out_.logits_step = index;
        out_.logits_device = from;
        return;
      }
      if (to_cpu) {  // the sender's work
        next.kind = Part::Kind::Gpu;
        next.device = from;
      } else if (from >= 0) {
        next.kind = Part::Kind::Peer;
        next.from = from;
      }
      next.crosses = next.kind == Part::Kind::Gpu;
    }
    const bool goes_on = !out_.parts.empty() && out_.parts.back().kind == next.kind &&
                         out_.parts.back().device == next.device &&
                         out_.parts.back().from == next.from && (to_cpu || !ends_with_submit_);
    if (!goes_on) {
      next.first_step = index;
      out_.parts.push_back(next);
    }
    out_.parts.back().step_count += 1;
    out_.parts.back().crosses |= next.crosses;
    ends_with_submit_ = to_cpu;
  }

  // A CPU part must not begin before the copies queued so far are over: those into its
  // inputs, and those out of memory that it may write again.
  void find_waits() {
    std::vector<int> last(out_.gpus.size(), -1);
    for (size_t i = 0; i < out_.parts.size(); ++i) {
      Part& part = out_.parts[i];
      if (part.kind == Part::Kind::Gpu && part.crosses) last[part.device] = static_cast<int>(i);
      if (part.kind != Part::Kind::Cpu) continue;
      for (int& wait : last) {
        if (wait >= 0) {
          part.waits_for.push_back(wait);
          out_.parts[wait].awaited = true;
        }
        wait = -1;  // a later part waits for later copies only
      }
    }
  }

  const plan::PlanView& plan_;
  std::vector<std::string> buffers_;
  PlanParts out_;
  bool ends_with_submit_ = false;
};

}  // namespace

PlanParts cut_parts(const plan::PlanView& plan) {
  return Cutter(plan).run();
}

int gpu_number(std::string_view device) {
  if (!device.starts_with("cuda:") || device.size() < 6 || device.size() > 7) return -1;
  int number = 0;
  for (char c : device.substr(5)) {
    if (c < '0' || c > '9') return -1;
    number = number * 10 + (c - '0');
  }
  return number;
}

}  // namespace ktx::runtime

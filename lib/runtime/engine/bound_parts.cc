#include "lib/runtime/engine/bound_parts.h"

#include <algorithm>

#include "lib/plan/device_memory.h"
#include "lib/plan/plan_hosts.h"
#include "lib/program/program.h"
#include "lib/target/host_device.h"

namespace ktx::runtime {
namespace {

int index_of(const std::vector<std::string>& gpus, std::string_view device) {
  const auto found = std::find(gpus.begin(), gpus.end(), device);
  return found == gpus.end() ? -1 : static_cast<int>(found - gpus.begin());
}

bool has_transfer(const plan::PlanView& plan, const Part& part) {
  const auto steps = plan.steps.subspan(part.first_step, part.step_count);
  return std::any_of(steps.begin(), steps.end(), [](const plan::StepRecord& step) {
    return step.op == static_cast<uint32_t>(StepOp::Transfer);
  });
}

// Finds what each part of the CPU waits for. It must not begin before those copies queued so far
// are over that write what it reads or writes, or read what it writes. A GPU's copies are done in
// their order, so of each GPU the last such part counts; a part of the CPU that waited for a later
// one has waited for that, too.
//
// The queues of two GPUs do not wait for each other. So the CPU's last part before one of them
// writes to a buffer waits for what the others have queued on it.
class WaitFinder {
 public:
  WaitFinder(const plan::PlanView& plan, BoundParts& bound)
      : plan_(plan), bound_(bound), gpus_(bound.gpus.size()), waited_(gpus_, -1) {
    const std::vector<std::string> devices = plan::buffer_devices(plan);
    for (const std::string& device : devices) of_cpu_.push_back(device == "cpu");
    for (auto* last : {&written_, &read_}) last->assign(devices.size() * gpus_, -1);
  }

  void run() {
    for (size_t p = 0; p < bound_.parts.size(); ++p) {
      const auto number = static_cast<int>(p);
      const Part& part = bound_.parts[p];
      if (part.kind == Part::Kind::Gpu && part.crosses) add_copies(part, number);
      const bool computes = part.kind == Part::Kind::Cpu || part.kind == Part::Kind::Network;
      if (computes) add_waits(part, cpu_ = number);
    }
  }

 private:
  template <class F>
  void for_steps(const Part& part, const F& f) const {
    for (const auto& step : plan_.steps.subspan(part.first_step, part.step_count)) f(step);
  }
  template <class F>
  void for_buffers(std::span<const plan::OperandRecord> operands, const F& f) const {
    for (const plan::OperandRecord& operand : operands) {
      if (operand.value != plan::kNone) f(plan_.values[operand.value].buffer);
    }
  }
  size_t at(uint32_t buffer, size_t gpu) const { return buffer * gpus_ + gpu; }

  void add_copies(const Part& part, int number) {
    const auto own = static_cast<size_t>(part.device);
    for_steps(part, [&](const plan::StepRecord& step) {
      if (step.op != static_cast<uint32_t>(StepOp::Transfer)) return;
      for_buffers(plan_.inputs(step), [&](uint32_t buffer) {
        if (of_cpu_[buffer]) read_[at(buffer, own)] = number;
      });
      for_buffers(plan_.outputs(step), [&](uint32_t buffer) {
        if (!of_cpu_[buffer]) return;
        for (size_t gpu = 0; gpu < gpus_; ++gpu) {
          if (gpu == own || cpu_ < 0) continue;
          wait(cpu_, gpu, std::max(read_[at(buffer, gpu)], written_[at(buffer, gpu)]));
        }
        written_[at(buffer, own)] = number;
      });
    });
  }

  void add_waits(const Part& part, int number) {
    for_steps(part, [&](const plan::StepRecord& step) {
      for (size_t gpu = 0; gpu < gpus_; ++gpu) {
        for_buffers(plan_.inputs(step),
                    [&](uint32_t buffer) { wait(number, gpu, written_[at(buffer, gpu)]); });
        for_buffers(plan_.outputs(step), [&](uint32_t buffer) {
          wait(number, gpu, std::max(read_[at(buffer, gpu)], written_[at(buffer, gpu)]));
        });
      }
    });
  }

  // The CPU's part `number`, for a part of a GPU that comes before it.
  void wait(int number, size_t gpu, int part) {
    if (part <= waited_[gpu] || part > number) return;
    waited_[gpu] = part;
    std::vector<int>& all = bound_.parts[static_cast<size_t>(number)].waits_for;
    std::erase_if(all, [&](int other) {
      return bound_.parts[static_cast<size_t>(other)].device == static_cast<int>(gpu);
    });
    all.push_back(part);
  }

  const plan::PlanView& plan_;
  BoundParts& bound_;
  const size_t gpus_;
  std::vector<bool> of_cpu_;         // by buffer
  std::vector<int> written_, read_;  // by buffer and GPU: the last part that copies there, or away
  std::vector<int> waited_;          // by GPU: the last part that the CPU has waited for
  int cpu_ = -1;                     // its last part
};

// Makes a part of the plan that of this host.
void take_place(const plan::PlanView& plan, const program::Part& part, Part& own) {
  const auto here = static_cast<int>(plan.host);
  if (part.kind == program::Part::Kind::Network) {
    own.device = static_cast<int>(plan::host_of(plan, part.device));
    own.from = static_cast<int>(plan::host_of(plan, part.from));
    if (own.device != here && own.from != here) own.kind = Part::Kind::Elsewhere;
  } else if (!target::is_first_host(part.device)) {  // "cpu" is the own one
    own.kind = Part::Kind::Elsewhere;
  }
}

// The steps that are in a part: all but the transfer of a GPU's logits.
size_t steps_in_parts(std::span<const program::Part> parts) {
  return parts.empty() ? 0 : parts.back().first_step + parts.back().step_count;
}

}  // namespace

BoundParts bind_parts(const plan::PlanView& plan) {
  const std::vector<program::Part>& parts = plan.program->parts;
  BoundParts bound;
  bound.gpus = plan::plan_gpus(plan);
  for (const program::Part& part : parts) {
    Part& own = bound.parts.emplace_back();
    own.kind = static_cast<Part::Kind>(part.kind);
    own.device = index_of(bound.gpus, part.device);
    own.from = index_of(bound.gpus, part.from);
    own.first_step = static_cast<uint32_t>(part.first_step);
    own.step_count = static_cast<uint32_t>(part.step_count);
    take_place(plan, part, own);
    own.crosses = own.kind == Part::Kind::Gpu && has_transfer(plan, own);
  }
  if (steps_in_parts(parts) < plan.steps.size()) {
    bound.logits_step = static_cast<uint32_t>(plan.steps.size()) - 1;
    const uint32_t value = plan.inputs(plan.steps.back())[0].value;
    bound.logits_device =
        index_of(bound.gpus, plan::buffer_devices(plan)[plan.values[value].buffer]);
  }
  WaitFinder(plan, bound).run();
  for (const Part& part : bound.parts) {
    for (int wait : part.waits_for) bound.parts[static_cast<size_t>(wait)].awaited = true;
  }
  return bound;
}

bool BoundParts::has_cpu() const {
  return std::any_of(parts.begin(), parts.end(),
                     [](const Part& part) { return part.kind == Part::Kind::Cpu; });
}

}  // namespace ktx::runtime

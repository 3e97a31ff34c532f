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

bool has_transfer(const program::Program& program, const Part& part) {
  return std::ranges::any_of(part.steps(program),
                             [](const program::Step& step) { return step.op == StepOp::Transfer; });
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
  WaitFinder(const program::Program& program, BoundParts& bound)
      : program_(program), bound_(bound), gpus_(bound.gpus.size()), waited_(gpus_, -1) {
    const std::vector<std::string> devices = program::buffer_devices(program);
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
  void for_buffers(const std::vector<program::View>& operands, const F& f) const {
    for (const program::View& operand : operands) {
      if (operand.value != program::kAbsent) f(program_.values[operand.value].buffer);
    }
  }
  size_t at(int32_t buffer, size_t gpu) const { return static_cast<size_t>(buffer) * gpus_ + gpu; }

  void add_copies(const Part& part, int number) {
    const auto own = static_cast<size_t>(part.device);
    for (const program::Step& step : part.steps(program_)) {
      if (step.op != StepOp::Transfer) continue;
      for_buffers(step.inputs, [&](int32_t buffer) {
        if (of_cpu_[buffer]) read_[at(buffer, own)] = number;
      });
      for_buffers(step.outputs, [&](int32_t buffer) {
        if (!of_cpu_[buffer]) return;
        for (size_t gpu = 0; gpu < gpus_; ++gpu) {
          if (gpu == own || cpu_ < 0) continue;
          wait(cpu_, gpu, std::max(read_[at(buffer, gpu)], written_[at(buffer, gpu)]));
        }
        written_[at(buffer, own)] = number;
      });
    }
  }

  void add_waits(const Part& part, int number) {
    for (const program::Step& step : part.steps(program_)) {
      for (size_t gpu = 0; gpu < gpus_; ++gpu) {
        for_buffers(step.inputs,
                    [&](int32_t buffer) { wait(number, gpu, written_[at(buffer, gpu)]); });
        for_buffers(step.outputs, [&](int32_t buffer) {
          wait(number, gpu, std::max(read_[at(buffer, gpu)], written_[at(buffer, gpu)]));
        });
      }
    }
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

  const program::Program& program_;
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
  const program::Program& program = *plan.program;
  const std::vector<program::Part>& parts = program.parts;
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
    own.crosses = own.kind == Part::Kind::Gpu && has_transfer(program, own);
  }
  if (steps_in_parts(parts) < program.steps.size()) {
    bound.logits_step = static_cast<uint32_t>(program.steps.size()) - 1;
    const program::ValueId value = program.input(bound.logits_step, 0);
    bound.logits_device = index_of(bound.gpus, program::value_devices(program)[value]);
  }
  WaitFinder(program, bound).run();
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

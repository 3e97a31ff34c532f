#include "lib/program/parts.h"

#include <algorithm>
#include <map>

#include "lib/target/host_device.h"

namespace ktx::program {
namespace {

constexpr std::string_view kKindNames[] = {"cpu", "gpu", "peer", "network", "reduce"};

}  // namespace

std::string_view part_kind_name(Part::Kind kind) {
  return kKindNames[static_cast<size_t>(kind)];
}

std::optional<Part::Kind> part_kind_from_name(std::string_view name) {
  const auto* const found = std::find(std::begin(kKindNames), std::end(kKindNames), name);
  if (found == std::end(kKindNames)) return std::nullopt;
  return static_cast<Part::Kind>(found - std::begin(kKindNames));
}

Part part_of(const Program& program, const std::vector<std::string>& devices, int32_t number) {
  const Step& step = program.steps[number];
  Part part{.kind = target::is_cpu(step.device) ? Part::Kind::Cpu : Part::Kind::Gpu,
            .device = step.device,
            .from = "",
            .first_step = number,
            .step_count = 1};
  if (step.op == StepOp::AllReduce) part.kind = Part::Kind::Reduce;
  if (step.op != StepOp::Transfer) return part;
  const std::string& from = devices[program.input(number, 0)];
  if (!target::on_same_host(step.device, from)) {
    part.kind = Part::Kind::Network;
    part.from = from;
  } else if (target::is_cpu(step.device)) {  // the sender's work
    part.kind = Part::Kind::Gpu;
    part.device = from;
  } else if (!target::is_cpu(from)) {
    part.kind = Part::Kind::Peer;
    part.from = from;
  }
  return part;
}

bool ends_with_logits(const Program& program) {
  if (program.steps.empty()) return false;
  const Step& last = program.steps.back();
  if (last.op != StepOp::Transfer || last.device != "cpu") return false;
  const size_t number = program.steps.size() - 1;
  return program.output(number) == program.logits() &&
         target::is_first_host(value_devices(program)[program.input(number, 0)]);
}

CpuWaits find_cpu_waits(const Program& program) {
  CpuWaits waits{std::vector<int32_t>(program.steps.size()),
                 std::vector<int32_t>(program.steps.size())};
  std::vector<int32_t> made_of(program.values.size());  // by value: the last run
  struct Host {
    int32_t runs = 0, of_part = 0;
    bool after_download = false;
  };
  std::map<std::string_view, Host> hosts;  // each walks its own steps alone
  const std::vector<std::string> devices = value_devices(program);
  for (size_t i = 0; i < program.steps.size(); ++i) {
    const Step& step = program.steps[i];
    auto& [runs, of_part, after_download] = hosts[target::host_of(step.device)];
    waits.before[i] = runs;
    const bool transfer = step.op == StepOp::Transfer;
    const bool download = transfer && target::is_cpu(step.device) &&
                          target::on_same_host(devices[program.input(i, 0)], step.device);
    if (download) {
      runs += after_download ? 0 : 1;
      made_of[step.outputs[0].value] = runs;
    }
    after_download = download;
    if (transfer || !target::is_cpu(step.device)) {
      of_part = 0;
      continue;
    }
    int32_t own = 0;
    for (const auto* operands : {&step.inputs, &step.outputs}) {
      for (const View& operand : *operands) {
        if (operand.value != kAbsent) own = std::max(own, made_of[operand.value]);
      }
    }
    for (const View& out : step.outputs) {
      if (out.value != kAbsent) made_of[out.value] = own;
    }
    waits.run[i] = of_part = std::max(of_part, own);
  }
  return waits;
}

std::vector<Part> cut_parts(const Program& program) {
  const std::vector<std::string> devices = value_devices(program);
  const CpuWaits waits = find_cpu_waits(program);
  const size_t count = program.steps.size() - (ends_with_logits(program) ? 1 : 0);
  std::vector<Part> parts;
  bool after_download = false;  // the step before hands a value to the CPU
  for (size_t i = 0; i < count; ++i) {
    const Step& step = program.steps[i];
    Part next = part_of(program, devices, static_cast<int32_t>(i));
    const bool download =
        step.op == StepOp::Transfer && target::is_cpu(step.device) && next.kind == Part::Kind::Gpu;
    const bool goes_on = !parts.empty() && parts.back().kind == next.kind &&
                         parts.back().device == next.device && parts.back().from == next.from &&
                         (download || !after_download) &&
                         (next.kind != Part::Kind::Cpu || !waits.later(i));
    if (goes_on) {
      parts.back().step_count += 1;
    } else {
      parts.push_back(std::move(next));
    }
    after_download = download;
  }
  return parts;
}

}  // namespace ktx::program

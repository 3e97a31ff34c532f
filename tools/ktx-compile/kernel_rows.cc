#include "tools/ktx-compile/kernel_rows.h"

#include <algorithm>

#include "lib/target/host_device.h"
#include "tools/ktx-compile/list_launches.h"

namespace ktx::tools {
namespace {

class Rows {
 public:
  void add(KernelRow row) {
    const auto same = [&](const KernelRow& other) {
      return other.device == row.device && other.op == row.op && other.tokens == row.tokens &&
             other.kernel == row.kernel && other.conditions == row.conditions;
    };
    const auto found = std::find_if(rows_.begin(), rows_.end(), same);
    KernelRow& kept = found == rows_.end() ? rows_.emplace_back(std::move(row)) : *found;
    kept.places += 1;
  }
  // Those of one device and op together.
  std::vector<KernelRow> take() {
    std::vector<KernelRow> out;
    for (const KernelRow& first : rows_) {
      const auto same = [&](const KernelRow& row) {
        return row.device == first.device && row.op == first.op;
      };
      if (std::any_of(out.begin(), out.end(), same)) continue;
      std::copy_if(rows_.begin(), rows_.end(), std::back_inserter(out), same);
    }
    std::stable_sort(out.begin(), out.end(),
                     [](const KernelRow& a, const KernelRow& b) { return a.device < b.device; });
    return out;
  }

 private:
  std::vector<KernelRow> rows_;
};

}  // namespace

std::vector<KernelRow> kernel_rows(const program::Program& program, const target::Target& target) {
  Rows rows;
  for (const program::Step& step : program.steps) {
    if (!target::is_cpu(step.device) || step.op == StepOp::Transfer || step.kernels[1].empty())
      continue;
    rows.add({step.device, std::string(info(step.op).name), "any", step.kernels[1], "", 0});
  }
  for (const program::Launch& launch : program.launches) {
    if (!may_take(target, launch)) continue;
    const program::Step& last = program.steps[static_cast<size_t>(launch.steps.back())];
    const std::string op(launch.op ? name(*launch.op) : info(last.op).name);
    rows.add({last.device, op, tokens_text(launch), launch.kernel, conditions_text(launch), 0});
  }
  return rows.take();
}

}  // namespace ktx::tools

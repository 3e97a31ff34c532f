#include "lib/program/verify_launches.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <map>
#include <vector>

#include "lib/program/find_fused.h"
#include "lib/program/fused/fused_rules.h"
#include "lib/program/gpu_form.h"
#include "lib/program/parts.h"
#include "lib/program/streams.h"
#include "lib/support/strings.h"

namespace ktx::program {
namespace {

using kernels::GpuForm;
using kernels::GpuKernelInfo;
using kernels::GpuMachine;

constexpr int32_t kNoPart = -1;
constexpr int32_t kStreamed = -2;  // of a part on the CPU that a GPU may compute

template <class... Args>
Status require(bool ok, fmt::format_string<Args...> format, Args&&... args) {
  if (ok) return {};
  return Error{fmt::format(format, std::forward<Args>(args)...)};
}

class Checker {
 public:
  Checker(const Program& program, int64_t stream_tokens)
      : program_(program),
        uses_(program),
        stream_tokens_(stream_tokens),
        part_of_(program.steps.size(), kNoPart),
        alone_(program.steps.size()) {
    const std::vector<Part>& parts = program.parts;
    for (size_t p = 0; p < parts.size(); ++p) {
      if (parts[p].kind != Part::Kind::Gpu) continue;
      for (int32_t i = 0; i < parts[p].step_count; ++i) {
        part_of_[parts[p].first_step + i] = static_cast<int32_t>(p);
      }
    }
    for (const Stream& stream : streams_of(program)) {
      for (int32_t i : stream.steps) part_of_[i] = kStreamed;
    }
  }

  Status add(const Launch& launch) {
    KTX_TRY(check_steps(launch));
    const auto kernel = kernels::gpu_kernel_from_name(launch.kernel);
    KTX_TRY(require(kernel.has_value(),
                    "no GPU kernel '{}'; the plan needs another ktx-run, or compile it again",
                    printable(launch.kernel)));
    KTX_TRY(check_conditions(launch, kernels::info(*kernel)));
    if (launch.op) return check_group(launch, kernels::info(*kernel));
    const int32_t step = launch.steps[0];
    alone_[step].push_back(&launch);
    const Step& listed = program_.steps[step];
    return check_kernel(
        launch, kernels::info(*kernel),
        part_of_[step] == kStreamed ? streamed_form(program_, listed) : gpu_form(program_, listed));
  }

  Status check_nesting() const {
    using Group = std::pair<const std::vector<int32_t>, FusedOp>;
    std::vector<const Group*> groups;
    for (const Group& group : kind_of_) groups.push_back(&group);
    std::ranges::stable_sort(groups, std::greater(),
                             [](const Group* g) { return g->first.size(); });
    std::vector<const Group*> around(program_.steps.size());  // by step: the smallest yet
    for (const Group* group : groups) {
      const Group* const outer = around[group->first.front()];
      const bool nests = outer == nullptr || fused_rule(outer->second).turn == 3;
      for (int32_t i : group->first) {
        KTX_TRY(require(nests && around[i] == outer, "step {} is in two groups", i));
        around[i] = group;
      }
    }
    return {};
  }

  Status check_cover() const {
    for (size_t i = 0; i < program_.steps.size(); ++i) {
      if (part_of_[i] == kNoPart || program_.steps[i].op == StepOp::Transfer) continue;
      for (const GpuMachine& machine : kernels::gpu_generations()) {
        const int64_t least = part_of_[i] == kStreamed ? stream_tokens_ : 1;
        KTX_TRY(require(covers(alone_[i], machine.sm, least),
                        "step {} ({}) has no kernel for some number of rows on GPUs of compute "
                        "capability {}.{}",
                        i, info(program_.steps[i].op).name, machine.sm / 10, machine.sm % 10));
      }
    }
    return {};
  }

 private:
  Status check_steps(const Launch& launch) const {
    KTX_TRY(require(!launch.steps.empty(), "a launch has no steps"));
    const auto count = static_cast<int32_t>(program_.steps.size());
    int32_t before = -1;
    for (int32_t i : launch.steps) {
      KTX_TRY(require(i > before && i < count, "step {} after {} of {} steps", i, before, count));
      KTX_TRY(require(part_of_[i] != kNoPart && part_of_[i] == part_of_[launch.steps[0]],
                      "steps {} and {} are not of one part on a GPU", launch.steps[0], i));
      KTX_TRY(require(part_of_[i] != kStreamed || !launch.op, "step {} is the CPU's", i));
      KTX_TRY(require(program_.steps[i].op != StepOp::Transfer, "step {} is a transfer", i));
      before = i;
    }
    return require(launch.op.has_value() || launch.steps.size() == 1, "{} steps, and no fused op",
                   launch.steps.size());
  }

  static Status check_conditions(const Launch& launch, const GpuKernelInfo& row) {
    KTX_TRY(require(1 <= launch.least_tokens && launch.least_tokens <= launch.most_tokens &&
                        launch.most_tokens <= kernels::kAnyRows,
                    "tokens {} to {}", launch.least_tokens, launch.most_tokens));
    KTX_TRY(require(row.least_sm <= launch.least_sm && launch.least_sm <= launch.most_sm &&
                        launch.most_sm <= row.most_sm,
                    "kernel {} for sm_{} to sm_{}", row.name, launch.least_sm, launch.most_sm));
    KTX_TRY(
        require((launch.needs & ~kernels::kAllKernelNeeds) == 0 && (row.needs & ~launch.needs) == 0,
                "kernel {} with needs {:#x}", row.name, launch.needs));
    return require(launch.least_run == 0 || launch.op == FusedOp::Latent,
                   "sequences of {} tokens, which kernel {} does not tell apart", launch.least_run,
                   row.name);
  }

  // For each generation that the launch is for.
  static Status check_kernel(const Launch& launch, const GpuKernelInfo& row, const GpuForm& form) {
    KTX_TRY(require(row.serves(form), "kernel {} for op {}", row.name,
                    form.fused ? name(*form.fused) : info(form.op).name));
    for (const GpuMachine& machine : kernels::gpu_generations()) {
      if (machine.sm < launch.least_sm || machine.sm > launch.most_sm) continue;
      const kernels::RowRange range = row.range(form, machine);
      KTX_TRY(require(!range.empty() && launch.most_tokens <= range.most,
                      "kernel {} cannot take {} rows of these weights on sm_{}", row.name,
                      launch.most_tokens, machine.sm));
    }
    return {};
  }

  Status check_group(const Launch& launch, const GpuKernelInfo& row) {
    const FusedGroup group{*launch.op, launch.steps};
    const auto [known, is_new] = kind_of_.emplace(launch.steps, *launch.op);
    if (is_new) {
      const Part& part = program_.parts[part_of_[launch.steps[0]]];
      KTX_TRY(require(is_fused(program_, uses_, part.first_step, part.step_count, group),
                      "steps {} are no {}: one run of them at the last one's place would not be "
                      "what they are",
                      fmt::join(launch.steps, ", "), name(*launch.op)));
    }
    KTX_TRY(require(known->second == *launch.op, "steps {} are two fused ops",
                    fmt::join(launch.steps, ", ")));
    return check_kernel(launch, row, gpu_form(program_, group));
  }

  static bool covers(const std::vector<const Launch*>& launches, int sm, int64_t next) {
    std::vector<std::pair<int64_t, int64_t>> ranges;
    for (const Launch* launch : launches) {
      if (launch->needs == 0 && launch->least_sm <= sm && sm <= launch->most_sm) {
        ranges.emplace_back(launch->least_tokens, launch->most_tokens);
      }
    }
    std::sort(ranges.begin(), ranges.end());
    for (const auto& [least, most] : ranges) {
      if (least > next) return false;
      next = std::max(next, most + 1);
    }
    return next > kernels::kAnyRows;
  }

  const Program& program_;
  const Uses uses_;
  const int64_t stream_tokens_;
  std::vector<int32_t> part_of_;                     // by step, of parts on GPUs; kStreamed
  std::map<std::vector<int32_t>, FusedOp> kind_of_;  // by the steps of a group
  std::vector<std::vector<const Launch*>> alone_;    // by step: its own launches
};

}  // namespace

Status verify_parts(const Program& program) {
  const std::vector<Part>& parts = program.parts;
  const std::vector<std::string> devices = value_devices(program);
  const auto count =
      static_cast<int32_t>(program.steps.size()) - static_cast<int32_t>(ends_with_logits(program));
  int32_t next = 0;
  for (size_t p = 0; p < parts.size(); ++p) {
    const Part& part = parts[p];
    KTX_TRY(
        require(part.first_step == next && part.step_count >= 1 && part.step_count <= count - next,
                "part {}: steps {} to {} of {}, expected from {}", p, part.first_step,
                int64_t{part.first_step} + part.step_count, count, next));
    for (; next < part.first_step + part.step_count; ++next) {
      const Part own = part_of(program, devices, next);
      KTX_TRY(require(own.kind == part.kind && own.device == part.device && own.from == part.from,
                      "part {} is for {}, and step {} for {}", p, printable(part.device), next,
                      printable(own.device)));
    }
  }
  return require(next == count, "the parts end at step {} of {}", next, count);
}

Status verify_groups(const Program& program) {
  const Uses uses(program);
  for (const FusedGroup& group : program.groups) {
    const auto holds = [&](const Part& part) {
      return !group.steps.empty() && part.kind == Part::Kind::Gpu &&
             group.steps.front() >= part.first_step &&
             group.steps.back() < part.first_step + part.step_count &&
             std::ranges::is_sorted(group.steps);
    };
    const auto part = std::ranges::find_if(program.parts, holds);
    if (part != program.parts.end() &&
        is_fused(program, uses, part->first_step, part->step_count, group)) {
      continue;
    }
    return Error{fmt::format("steps {} are no {} of a part on a GPU", fmt::join(group.steps, ", "),
                             name(group.op))};
  }
  return {};
}

Status verify_launches(const Program& program) {
  Checker checker(program, KTX_TRY(stream_tokens(program)));
  for (size_t i = 0; i < program.launches.size(); ++i) {
    const Status good = checker.add(program.launches[i]);
    if (!good) return Error{fmt::format("launch {}: {}", i, good.error().message)};
  }
  KTX_TRY(checker.check_nesting());
  return checker.check_cover();
}

}  // namespace ktx::program

#include "tools/ktx-compile/list_launches.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "lib/passes/cost/target_devices.h"
#include "lib/support/strings.h"
#include "lib/target/gpu_generation.h"

namespace ktx::tools {
namespace {

using program::Launch;
using program::Part;

std::string title(const program::Program& program, const Launch& launch) {
  const program::Step& last = program.steps[static_cast<size_t>(launch.steps.back())];
  if (!launch.op) {
    return fmt::format("  step {}, {} of {}\n", launch.steps.back(), info(last.op).name,
                       printable(last.module));
  }
  return fmt::format("  steps {}: {}, the last one of {}\n", fmt::join(launch.steps, ", "),
                     name(*launch.op), printable(last.module));
}

}  // namespace

std::string tokens_text(const Launch& launch) {
  if (launch.most_tokens == kernels::kAnyRows) {
    return launch.least_tokens == 1 ? "any" : fmt::format("{}..", launch.least_tokens);
  }
  if (launch.least_tokens == launch.most_tokens) return fmt::format("{}", launch.least_tokens);
  return fmt::format("{}..{}", launch.least_tokens, launch.most_tokens);
}

std::string conditions_text(const Launch& launch) {
  std::vector<std::string> words;
  const int oldest = kernels::gpu_generations().front().sm;
  const bool newest = launch.most_sm == kernels::kNewestSm;
  if (launch.least_sm == launch.most_sm) {
    words.push_back(fmt::format("sm_{}", launch.least_sm));
  } else if (launch.least_sm > oldest) {
    words.push_back(newest ? fmt::format("sm_{} and newer", launch.least_sm)
                           : fmt::format("sm_{} to sm_{}", launch.least_sm, launch.most_sm));
  } else if (!newest) {
    words.push_back(fmt::format("up to sm_{}", launch.most_sm));
  }
  if (launch.needs != 0) words.push_back("needs " + kernels::needs_text(launch.needs));
  if (launch.least_run > 0) {
    words.push_back(fmt::format("for sequences of {} tokens or more", launch.least_run));
  }
  return join(words, ", ");
}

bool may_take(const target::Target& target, const Launch& launch) {
  const std::vector<const target::GpuTarget*> gpus = passes::all_gpus(target);
  if (gpus.empty()) return true;
  return std::ranges::any_of(gpus, [&](const target::GpuTarget* gpu) {
    const int sm = target::generation(*gpu);
    return launch.least_sm <= sm && sm <= launch.most_sm;
  });
}

std::string launch_line(const Launch& launch) {
  const std::string line =
      fmt::format("{:<10} {:<22} {}", tokens_text(launch), launch.kernel, conditions_text(launch));
  return line.substr(0, line.find_last_not_of(' ') + 1);
}

std::string list_launches(const program::Program& program, const target::Target& target) {
  std::string out;
  auto launch = program.launches.begin();
  for (size_t p = 0; p < program.parts.size(); ++p) {
    const Part& part = program.parts[p];
    const int32_t end = part.first_step + part.step_count;
    const std::string from = part.from.empty() ? "" : " from " + printable(part.from);
    out += fmt::format("part {}, {}{}: steps {} to {}\n", p, printable(part.device), from,
                       part.first_step, end - 1);
    const Launch* before = nullptr;
    for (; launch != program.launches.end() && launch->steps.back() < end; ++launch) {
      if (!may_take(target, *launch)) continue;
      if (!before || before->steps != launch->steps) out += title(program, *launch);
      out += "    " + launch_line(*launch) + "\n";
      before = &*launch;
    }
  }
  return out;
}

}  // namespace ktx::tools

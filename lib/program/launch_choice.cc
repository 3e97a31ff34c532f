#include "lib/program/launch_choice.h"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>

#include "lib/program/gpu_form.h"
#include "lib/program/streams.h"
#include "lib/support/quantity.h"
#include "lib/support/strings.h"

namespace ktx::program {
namespace {

using kernels::GpuChoice;
using kernels::GpuForm;
using kernels::GpuKernel;
using kernels::GpuMachine;

// The choices of one machine as launches of it alone.
std::vector<Launch> launches_of(const GpuForm& form, const std::vector<int32_t>& steps,
                                const GpuMachine& machine, const Preferences& preferences) {
  std::vector<Launch> launches;
  for (const GpuChoice& choice : kernels::choose_gpu_kernels(form, machine)) {
    if (choice.kernel == GpuKernel::CublasGemm && !preferences.cublas) continue;
    Launch launch{.op = form.fused,
                  .steps = steps,
                  .kernel = std::string(kernels::info(choice.kernel).name),
                  .least_tokens = choice.rows.least,
                  .most_tokens = choice.rows.most,
                  .least_sm = machine.sm,
                  .most_sm = machine.sm,
                  .needs = choice.needs,
                  .least_run = 0};
    if (choice.kernel == GpuKernel::LatentExpanded) {
      if (preferences.latent == Preferences::Latent::Absorbed) continue;
      if (preferences.latent == Preferences::Latent::Measured) {
        launch.least_tokens = kernels::kExpandedTokens;
      }
      launch.least_run = launch.least_tokens;
    }
    launches.push_back(std::move(launch));
  }
  return launches;
}

// Whether two launches differ by their generations alone.
bool alike(Launch a, const Launch& b) {
  a.least_sm = b.least_sm;
  a.most_sm = b.most_sm;
  return a == b;
}

// The launches for all machines; one that consecutive machines choose is a single launch.
std::vector<Launch> launches_of(const GpuForm& form, const std::vector<int32_t>& steps,
                                std::span<const GpuMachine> machines,
                                const Preferences& preferences) {
  std::vector<Launch> all;
  for (size_t m = 0; m < machines.size(); ++m) {
    const bool newest = m + 1 == machines.size();
    for (Launch& launch : launches_of(form, steps, machines[m], preferences)) {
      launch.most_sm = newest ? kernels::kNewestSm : machines[m + 1].sm - 1;
      const kernels::GpuKernelInfo& row =
          kernels::info(*kernels::gpu_kernel_from_name(launch.kernel));
      launch.most_sm = std::min(launch.most_sm, row.most_sm);
      const auto before = std::find_if(all.begin(), all.end(), [&](const Launch& other) {
        return alike(other, launch) && other.most_sm + 1 == launch.least_sm;
      });
      if (before != all.end()) {
        before->most_sm = launch.most_sm;
      } else {
        all.push_back(std::move(launch));
      }
    }
  }
  // What needs something first, in the order of the table.
  std::stable_sort(all.begin(), all.end(), [](const Launch& a, const Launch& b) {
    const auto key = [](const Launch& launch) {
      return std::tuple(launch.needs == 0, *kernels::gpu_kernel_from_name(launch.kernel));
    };
    return key(a) < key(b);
  });
  return all;
}

// The launches of a step of the CPU that a GPU computes from `least` tokens on.
std::vector<Launch> streamed(std::vector<Launch> launches, int64_t least) {
  std::erase_if(launches, [&](const Launch& l) { return l.most_tokens < least; });
  for (Launch& launch : launches) launch.least_tokens = std::max(launch.least_tokens, least);
  return launches;
}

struct Preference {
  std::string_view name;
  void (*set)(Preferences&);
};
constexpr Preference kPreferences[] = {
    // Prompts of models with MLA in absorbed form, however long.
    {"mla=absorbed", [](Preferences& p) { p.latent = Preferences::Latent::Absorbed; }},
    // In expanded form from two tokens of a sequence on, where a GPU has it.
    {"mla=expanded", [](Preferences& p) { p.latent = Preferences::Latent::Expanded; }},
    {"cublas=no", [](Preferences& p) { p.cublas = false; }},
    {"fused=no", [](Preferences& p) { p.fused = false; }},
    {"stream-experts=no",
     [](Preferences& p) {
       p.stream_tokens = 0;
       p.stream_chosen = true;
     }},
    {"joint-experts=no",
     [](Preferences& p) {
       p.joint_tokens = 0;
       p.joint_chosen = true;
     }},
};

constexpr int64_t kMostTokens = 1 << 20;

// Those with a number of tokens: "stream-experts=256".
struct TokenPreference {
  std::string_view name;
  void (*set)(Preferences&, int64_t tokens);
};
constexpr TokenPreference kTokenPreferences[] = {
    {"stream-experts=",
     [](Preferences& p, int64_t tokens) {
       p.stream_tokens = tokens;
       p.stream_chosen = true;
     }},
    {"joint-experts=",
     [](Preferences& p, int64_t tokens) {
       p.joint_tokens = tokens;
       p.joint_chosen = true;
     }},
};

bool set_tokens(std::string_view word, Preferences& preferences) {
  for (const TokenPreference& row : kTokenPreferences) {
    if (!word.starts_with(row.name)) continue;
    const auto tokens = parse_count(word.substr(row.name.size()), 1, kMostTokens);
    if (tokens) row.set(preferences, *tokens);
    return tokens.has_value();
  }
  return false;
}

}  // namespace

Result<Preferences> parse_preferences(std::string_view text) {
  Preferences preferences;
  std::vector<std::string> names;
  for (const Preference& row : kPreferences) names.emplace_back(row.name);
  for (const TokenPreference& row : kTokenPreferences) names.push_back(std::string(row.name) + "N");
  for (std::string_view word : split(text, ',')) {
    if (set_tokens(word, preferences)) continue;
    const auto* const row = std::ranges::find(kPreferences, word, &Preference::name);
    if (row == std::end(kPreferences)) {
      return Error{fmt::format("unknown preference '{}'{}; there are {}", printable(word),
                               did_you_mean(std::string(word), names), join(names, ", "))};
    }
    row->set(preferences);
  }
  return preferences;
}

std::vector<FusedGroup> groups_of(std::span<const Launch> launches) {
  std::vector<FusedGroup> groups;
  for (const Launch& launch : launches) {
    if (!launch.op) continue;
    const FusedGroup group{*launch.op, launch.steps};
    if (groups.empty() || groups.back() != group) groups.push_back(group);
  }
  return groups;
}

std::vector<Launch> choose_launches(const Program& program, std::span<const GpuMachine> machines,
                                    const Preferences& preferences) {
  std::vector<Launch> all;
  const auto add = [&](const GpuForm& form, const std::vector<int32_t>& steps) {
    std::vector<Launch> some = launches_of(form, steps, machines, preferences);
    all.insert(all.end(), std::make_move_iterator(some.begin()),
               std::make_move_iterator(some.end()));
  };
  auto group = program.groups.begin();  // rising by the last step
  std::vector<Stream> streams;
  if (preferences.stream_tokens > 0) streams = find_streams(program);
  auto stream = streams.begin();  // rising by the part
  for (const Part& part : program.parts) {
    if (stream != streams.end() && &part == &program.parts[stream->part]) {
      for (int32_t i : (stream++)->steps) {
        std::vector<Launch> some =
            launches_of(streamed_form(program, program.steps[i]), {i}, machines, preferences);
        some = streamed(std::move(some), preferences.stream_tokens);
        all.insert(all.end(), some.begin(), some.end());
      }
    }
    if (part.kind != Part::Kind::Gpu) continue;
    for (int32_t i = part.first_step; i < part.first_step + part.step_count; ++i) {
      if (program.steps[i].op != StepOp::Transfer) add(gpu_form(program, program.steps[i]), {i});
      while (group != program.groups.end() && group->steps.back() < i) ++group;
      for (; group != program.groups.end() && group->steps.back() == i; ++group) {
        if (preferences.fused) add(gpu_form(program, *group), group->steps);
      }
    }
  }
  return all;
}

}  // namespace ktx::program

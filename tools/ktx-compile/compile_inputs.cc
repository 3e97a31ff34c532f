#include "tools/ktx-compile/compile_inputs.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <memory>

#include "lib/arch/build_graph.h"
#include "lib/passes/placement/chunk_tokens.h"
#include "lib/plan/expert_profile.h"
#include "lib/rules/checks.h"
#include "lib/rules/target_yaml.h"
#include "lib/support/strings.h"

namespace ktx::tools {
namespace {

namespace fs = std::filesystem;

// The folders in which profiles of machines come with the program.
std::vector<fs::path> profile_folders() {
  std::error_code error;
  const fs::path program = fs::read_symlink("/proc/self/exe", error).parent_path();
  return {program / "../targets", program / "../share/ktx/targets"};
}

std::vector<std::string> profile_names() {
  std::error_code error;
  std::vector<std::string> names;
  for (const fs::path& folder : profile_folders()) {
    for (const fs::directory_entry& entry : fs::directory_iterator(folder, error)) {
      if (entry.path().extension() == ".yaml") names.push_back(entry.path().stem().string());
    }
  }
  std::sort(names.begin(), names.end());
  return names;
}

void limit_gpu_memory(const Options& options, passes::CompileState& state) {
  if (options.vram_bytes == 0) return;
  const auto limit_all = [&](std::vector<target::GpuTarget>& gpus) {
    for (target::GpuTarget& gpu : gpus) {
      const auto limit = static_cast<uint64_t>(options.vram_bytes);
      gpu.memory_bytes = gpu.memory_bytes == 0 ? limit : std::min(gpu.memory_bytes, limit);
    }
    return !gpus.empty();
  };
  bool any = limit_all(state.target.gpus);
  for (target::HostTarget& host : state.target.hosts) any = limit_all(host.gpus) || any;
  if (any) return;
  state.diags->error({}, "", "--vram limits the memory of GPUs, and the target has none")
      .help("name a machine with a GPU: --target=rtx-4090");
}

}  // namespace

std::string target_path(const std::string& given) {
  std::error_code error;
  if (fs::exists(given, error) || given.find('/') != std::string::npos) return given;
  for (const fs::path& folder : profile_folders()) {
    const fs::path path = folder / (given + ".yaml");
    if (fs::exists(path, error)) return path.lexically_normal().string();
  }
  return given;
}

DiagPolicy policy_of(const Options& options) {
  DiagPolicy policy;
  for (const std::string& flag : options.warnings) {
    const Status added = rules::add_warning_flag(flag, policy);
    (void)added;  // parse_options refused wrong ones
  }
  return policy;
}

void set_run_shape(const Options& options, passes::CompileState& state) {
  limit_gpu_memory(options, state);
  const int64_t model_ctx = state.modules.facts.context_length;
  const int64_t usual = model_ctx > 0 ? std::min(model_ctx, arch::kDefaultCtx) : arch::kDefaultCtx;
  plan::RunShape& shape = state.check.shape;
  shape.ctx = options.ctx > 0 ? options.ctx : usual;
  state.check.largest_ctx = options.ctx == kLargestCtx;
  shape.max_batch = options.max_batch;
  shape.step_tokens = passes::chunk_tokens(state.modules, state.prefer.stream_tokens);
  shape.step_outputs = options.max_batch;
  state.check.kv_budget_bytes = options.kv_budget_bytes;
  state.check.disk_gbps = options.disk_gbps;
  state.check.strict_numerics = options.strict_numerics;
}

void read_expert_profiles(const Options& options, passes::CompileState& state) {
  if (options.expert_profiles.empty()) return;
  auto profile = std::make_shared<plan::ExpertProfile>();
  for (const std::string& path : options.expert_profiles) {
    const auto wrong = [&](const std::string& what) {
      state.diags->error({}, "", fmt::format("{}: {}", printable(path), what))
          .help("record one of this model: ktx-run generate ... --record-experts FILE");
    };
    const Result<plan::ExpertProfile> more = plan::read_expert_profile(path);
    if (!more) {
      state.diags->error({}, "", more.error().message);
      continue;
    }
    const std::string& family = state.modules.facts.architecture;
    if (!family.empty() && more->architecture != family) {
      wrong(fmt::format("a profile of a {} model, but this is {}", printable(more->architecture),
                        family));
      continue;
    }
    bool fits = true;
    for (const ir::Module& module : state.modules.modules) {
      const auto* info = std::get_if<ir::ExpertsInfo>(&module.info);
      const auto layer = more->layers.find(module.layer);
      if (!fits || info == nullptr || layer == more->layers.end()) continue;
      fits = std::ssize(layer->second) == info->experts;
      if (fits) continue;
      wrong(fmt::format("layer {} has {} experts there, and {} in the model", module.layer,
                        layer->second.size(), info->experts));
    }
    const Status added = fits ? plan::add_expert_profile(*profile, *more) : Status();
    if (!added) wrong(added.error().message);
  }
  state.expert_profile = std::move(profile);
}

void read_rule_files(std::span<const std::string> paths, passes::CompileState& state) {
  for (const std::string& path : paths) {
    const Status read = rules::add_rules(state.rules, path, *state.diags);
    if (!read) state.diags->error({}, "R008", read.error().message);
  }
}

void read_target_file(const Options& options, passes::CompileState& state) {
  if (options.target.empty()) return;
  const std::string path = target_path(options.target);
  Result<target::Target> target = rules::read_target(path, *state.diags);
  if (!target) {
    const bool is_path = path.find('/') != std::string::npos || path.ends_with(".yaml");
    const std::vector<std::string> profiles = profile_names();
    const std::string nearest = is_path ? "" : nearest_name(path, profiles);
    Diagnostic& diag = state.diags->error({}, "R008", target.error().message);
    if (target.error().message.find("did you mean") != std::string::npos) return;
    if (!nearest.empty()) {
      diag.help(fmt::format("did you mean '{}'?", nearest));
    } else if (!profiles.empty()) {
      diag.help(fmt::format("profiles are {}", join(profiles, ", ")));
    }
    return;
  }
  state.target = target.take();
  state.check.target_given = true;
}

}  // namespace ktx::tools

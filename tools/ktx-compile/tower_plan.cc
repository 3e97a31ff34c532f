#include "tools/ktx-compile/tower_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "lib/arch/build_graph.h"
#include "lib/families/family.h"
#include "lib/input/tower_source.h"
#include "lib/passes/cost/estimate.h"
#include "lib/passes/cost/estimate_text.h"
#include "lib/passes/emit_plan.h"
#include "lib/plan/device_memory.h"
#include "lib/plan/gpu_reserve.h"
#include "lib/plan/most_chunk.h"
#include "lib/support/strings.h"
#include "lib/target/target.h"
#include "tools/ktx-compile/compile_inputs.h"
#include "tools/progress.h"

namespace ktx::tools {
namespace {

constexpr std::string_view kWhose = "the projector";

// The tower before its passes.
struct TowerModel {
  DiagSink sink;
  std::optional<input::ModelSource> source;
  passes::CompileState state;
  plan::ImageFacts image;
};

// The keys have been checked by the graph's builder.
plan::ImageFacts image_facts(const input::HfConfig& config) {
  const families::TowerForm& form = families::find_model_type(config.model_type())->tower;
  const auto numbers = [&](const char* key) {
    const std::vector<double> all = config.floats(key).value_or(std::vector<double>());
    return std::vector<float>(all.begin(), all.end());
  };
  plan::ImageFacts image;
  image.size = config.i64("image_size").value_or(0);
  image.patch = config.i64("patch_size").value_or(0);
  image.pool = config.i64("image_pool").value_or(0);
  image.width = config.i64("projection_dim").value_or(0);
  if (config.has("image_max_pixels")) {
    image.least_pixels = config.i64("image_min_pixels").value_or(0);
    image.most_pixels = config.i64("image_max_pixels").value_or(0);
  }
  image.axes = form.axes;
  const std::vector<float> parts = numbers("deepstack_layers");
  image.more_parts = std::ranges::count_if(parts, [](float part) { return part != 0; });
  image.mean = numbers("image_mean");
  image.deviation = numbers("image_std");
  image.resize = form.resize;
  image.keeps_shape = form.keeps_shape;
  image.causal = form.causal;
  image.mark = form.mark;
  image.before = form.before;
  image.behind = form.behind;
  image.line_end = form.line_end;
  return image;
}

// An image is one pass.
plan::RunShape shape_of(const plan::ImageFacts& image) {
  plan::RunShape shape;
  shape.ctx = shape.step_tokens = image.patches();
  shape.step_outputs = image.tokens();
  return shape;
}

// What stands between the lines of an image is a token of the model.
Status check_line_end(const std::string& file, const plan::ImageFacts& image,
                      const text::TokenizerData& tokenizer) {
  if (image.line_end.empty()) return {};
  for (size_t id = 0; id < tokenizer.tokens.size(); ++id) {
    if (tokenizer.tokens[id] == image.line_end) return {};
  }
  return Error{fmt::format(
      "{}: the model has no token '{}', which stands between the lines of an image; is it the "
      "projector of another model?",
      file, image.line_end)};
}

// Where the model's file says into how many layers images go.
Status check_parts(const std::string& file, const plan::ImageFacts& image,
                   const input::GgufFile& model) {
  const std::string key = fmt::format("{}.n_deepstack_layers", model.architecture());
  const input::GgufValue* const value = model.value(key);
  const auto layers = value ? value->i64() : std::nullopt;
  if (!layers || *layers == image.more_parts) return {};
  return Error{fmt::format(
      "{}: its rows have {} parts for layers of the model, whose key '{}' is {}; is it the "
      "projector of another model?",
      file, image.more_parts, key, *layers)};
}

// The rows fit the model, and layers with a window see all of an image.
Status check_model(const std::string& file, const plan::ImageFacts& image,
                   const ir::ModuleGraph& model) {
  if (image.width != model.facts.hidden) {
    return Error{fmt::format(
        "{}: its rows have {} elements (projection_dim), those of the model's embedding {}; is it "
        "the projector of another model?",
        file, image.width, model.facts.hidden)};
  }
  if (image.more_parts > model.facts.layers) {
    return Error{fmt::format(
        "{}: its rows have {} parts for layers of the model, which has {}; is it the projector of "
        "another model?",
        file, image.more_parts, model.facts.layers)};
  }
  const auto turns = [](const ir::Module& module) {
    const auto* rotary = std::get_if<ir::RotaryInfo>(&module.info);
    return rotary && rotary->has_axes();
  };
  if (image.axes && std::ranges::none_of(model.modules, turns)) {
    return Error{fmt::format(
        "{}: positions of an image have a line and a column, but the model's file does not say "
        "which pairs of a head turn by them: the key 'rope.dimension_sections' is missing or does "
        "not sum up to its pairs; convert the model again",
        file)};
  }
  if (image.causal) return {};
  for (const ir::Module& module : model.modules) {
    const auto* attention = std::get_if<ir::AttentionInfo>(&module.info);
    if (!attention || attention->window == 0 || attention->window >= image.tokens()) continue;
    return Error{
        fmt::format("{}: an image has {} tokens, more than the window of {} of '{}': attention "
                    "that sees an image beyond its window is not known",
                    file, image.tokens(), attention->window, module.path)};
  }
  return {};
}

// The GPUs that a tower may use: the first one of the target, or, where it has rules, all. On the
// first one it may take what the model hardly needs, or a quarter of it where the model is larger,
// as images on the CPU take many times as long.
std::vector<target::GpuTarget> gpus_for_tower(const passes::CompileState& model, bool has_rules) {
  std::vector<target::GpuTarget> gpus = model.target.gpus;
  if (gpus.empty()) return {};
  constexpr double kBesideWeights = 1.2;  // caches and activations
  const auto memory = static_cast<double>(gpus.front().memory_bytes);
  const double left = memory - kBesideWeights * static_cast<double>(weight_bytes(model.modules)) /
                                   static_cast<double>(gpus.size());
  gpus.front().memory_bytes = static_cast<uint64_t>(std::max(left, memory / 4));
  if (!has_rules) gpus.resize(1);
  return gpus;
}

Result<std::unique_ptr<TowerModel>> build_tower(const Options& options,
                                                const input::ModelSource& model,
                                                const passes::CompileState& model_state,
                                                bool on_gpu) {
  auto made = std::make_unique<TowerModel>();
  passes::CompileState& state = made->state;
  state.diags = &made->sink;
  state.target = model_state.target;
  state.target.gpus = on_gpu ? gpus_for_tower(model_state, !options.mmproj_rules.empty())
                             : std::vector<target::GpuTarget>();
  state.check = model_state.check;
  state.check.target_given = on_gpu;
  state.bf16_inputs = model_state.bf16_inputs;
  read_rule_files(options.mmproj_rules, state);
  input::GgufFile gguf =
      KTX_TRY(input::GgufFile::open(options.mmproj, {.header_only_ok = options.check}));
  Result<input::ModelSource> source = input::tower_source(std::move(gguf), model.gguf, made->sink);
  if (!source) return source.error();
  made->source = source.take();
  Result<ir::ModuleGraph> graph = arch::build_tower_graph(*made->source, made->sink);
  if (made->sink.errors() > 0) return first_error(made->sink, kWhose, "");
  state.modules = KTX_TRY(std::move(graph));
  state.config = &made->source->config;
  made->image = image_facts(made->source->config);
  KTX_TRY(check_model(options.mmproj, made->image, model_state.modules));
  KTX_TRY(check_parts(options.mmproj, made->image, model.gguf));
  KTX_TRY(check_line_end(options.mmproj, made->image, model.tokenizer));
  Options own = options;
  own.vram_bytes = 0;
  own.kv_budget_bytes = 0;
  own.ctx = made->image.patches();
  own.max_batch = 1;
  set_run_shape(own, state);
  state.check.shape = shape_of(made->image);
  return made;
}

// Whether a GPU has all of it, or what rules leave to it.
bool stands_on_gpu(const TowerModel& made) {
  return std::ranges::none_of(made.state.modules.modules, [](const ir::Module& module) {
    return !module.params.empty() && module.decision.rule < 0 && module.decision.device == "cpu";
  });
}

// Whether rules put some of it on a GPU.
bool names_gpus(const TowerModel& made) {
  return std::ranges::any_of(made.state.rules.rules, [](const rules::Rule& rule) {
    return rule.replace.device && rule.replace.device->text.find("cuda") != std::string::npos;
  });
}

// A GPU reads an image as one pass.
bool is_one_pass(const TowerModel& made) {
  return made.image.patches() <= plan::kMostChunk;
}

// Why a GPU has not all of it: its images, what no kernel there computes, or its size.
std::string obstacle(const TowerModel& made) {
  if (!is_one_pass(made)) {
    return fmt::format("an image has up to {} patches, and a GPU reads {} at most",
                       made.image.patches(), plan::kMostChunk);
  }
  for (const Diagnostic& diag : made.sink.all()) {
    if (diag.message.find("no GPU kernel") != std::string::npos) return diag.message;
  }
  return fmt::format("it takes more of {} than the {} that the model leaves there",
                     made.state.target.gpus.front().name,
                     human_bytes(made.state.target.gpus.front().memory_bytes));
}

// Behind its passes, on the first GPU where that holds it, else on the CPU.
Result<std::unique_ptr<TowerModel>> compile_tower(const Options& options,
                                                  const input::ModelSource& model,
                                                  const passes::CompileState& model_state,
                                                  const passes::PassOptions& passes) {
  if (!model_state.target.gpus.empty()) {
    std::unique_ptr<TowerModel> made = KTX_TRY(build_tower(options, model, model_state, true));
    if (names_gpus(*made) && !is_one_pass(*made)) {
      return Error{
          fmt::format("{}: {}; leave GPUs out of --mmproj-rules", options.mmproj, obstacle(*made))};
    }
    const Status passed = passes::run_passes(made->state, passes);
    if (!passed && names_gpus(*made)) {
      return first_error(made->sink, kWhose, passed.error().message);
    }
    if (passed && is_one_pass(*made) && (stands_on_gpu(*made) || names_gpus(*made))) {
      hand_on_warnings(made->sink, kWhose, *model_state.diags);
      return made;
    }
    model_state.diags->note({}, "",
                            fmt::format("the projector is on the CPU: {}", obstacle(*made)));
  }
  std::unique_ptr<TowerModel> made = KTX_TRY(build_tower(options, model, model_state, false));
  const Status passed = passes::run_passes(made->state, passes);
  if (!passed) return first_error(made->sink, kWhose, passed.error().message);
  hand_on_warnings(made->sink, kWhose, *model_state.diags);
  return made;
}

Status write_tower(const Options& options, const input::ModelSource& model,
                   const passes::CompileState& model_state, const std::string& path) {
  const std::unique_ptr<TowerModel> made = KTX_TRY(compile_tower(options, model, model_state, {}));
  passes::CompileState& state = made->state;
  passes::EmitOptions emit;
  emit.image = made->image;
  emit.default_ctx = made->image.patches();
  emit.isa = std::string(name(state.target.cpu.isa));
  emit.carry_unused = false;
  Result<plan::PlanContents> contents = passes::make_contents(state, *made->source, emit);
  if (!contents) return first_error(made->sink, kWhose, contents.error().message);
  Progress progress("packing the projector", options.quiet);
  const auto written = passes::emit_plan(
      path, contents.take(), *made->source,
      {.threads = options.threads,
       .progress = [&](uint64_t done, uint64_t total) { progress.update(done, total); }});
  progress.finish();
  if (!written) return written.error();
  return {};
}

}  // namespace

Result<TowerPlan> TowerPlan::make(const Options& options, const input::ModelSource& model,
                                  const passes::CompileState& state) {
  const std::string path = options.output + ".tower";
  if (path == options.mmproj || path == options.model) {
    return Error{fmt::format("{}: is written meanwhile; rename it", printable(path))};
  }
  KTX_TRY(write_tower(options, model, state, path));
  OwnFile own(new std::string(path));
  plan::PlanFile plan = KTX_TRY(plan::PlanFile::open(*own));
  return TowerPlan(std::move(own), std::move(plan));
}

void take_images(const plan::ImageFacts& image, passes::CompileState& model) {
  model.image_parts = static_cast<int32_t>(1 + image.more_parts);
}

Status check_hosts_of_tower(const passes::CompileState& model) {
  if (model.target.hosts.empty()) return {};
  return Error{"a model that takes images (--mmproj) runs on one host; the target has several"};
}

Status TowerPlan::leave_room(passes::CompileState& model) const {
  const plan::RunShape shape = shape_of(plan().facts.image);
  KTX_TRY(take_memory_of(plan(), shape, model));
  for (const std::string& gpu : plan::plan_gpus(plan())) {
    take_from(model, gpu, plan::gpu_reserve_bytes(shape.step_tokens));
  }
  return {};
}

Result<TowerEstimate> estimate_tower(const Options& options, const input::ModelSource& model,
                                     passes::CompileState& model_state) {
  passes::PassOptions passes;
  passes.stop_after = "check-memory";
  const std::unique_ptr<TowerModel> made =
      KTX_TRY(compile_tower(options, model, model_state, passes));
  const passes::Estimate estimate = KTX_TRY(passes::estimate_of(made->state));
  for (const passes::DeviceUse& device : estimate.devices) {
    take_from(
        model_state, device.name,
        device.total() - device.reserve_bytes + plan::gpu_reserve_bytes(made->image.patches()));
  }
  const std::string text =
      fmt::format("\nprojector ({}); an image is {}{} tokens, made of {} patches\n{}",
                  options.mmproj, made->image.keeps_shape ? "at most " : "", made->image.tokens(),
                  made->image.patches(), passes::estimate_table(estimate));
  return TowerEstimate{text, made->image};
}

}  // namespace ktx::tools

#include "tools/ktx-compile/pipeline.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <optional>
#include <vector>

#include "lib/arch/build_graph.h"
#include "lib/input/model_source.h"
#include "lib/passes/emit_plan.h"
#include "lib/passes/pass.h"
#include "lib/plan/host_part.h"
#include "lib/support/env.h"
#include "lib/support/strings.h"
#include "lib/support/timer.h"
#include "lib/target/target.h"
#include "lib/text/chat_template/chat_template.h"
#include "lib/text/tokenizer/tokenizer_data.h"
#include "tools/given_adapter.h"
#include "tools/ktx-compile/compile_inputs.h"
#include "tools/ktx-compile/consumed_model.h"
#include "tools/ktx-compile/drafter_plan.h"
#include "tools/ktx-compile/list_launches.h"
#include "tools/ktx-compile/merged_adapters.h"
#include "tools/ktx-compile/self_test_prompts.h"
#include "tools/ktx-compile/text_check.h"
#include "tools/ktx-compile/tower_plan.h"
#include "tools/option_readers.h"
#include "tools/progress.h"

namespace ktx::tools {
namespace {

// Prints each diagnostic once, as soon as a stage is over.
class Reporter {
 public:
  explicit Reporter(bool quiet)
      : quiet_(quiet), color_(isatty(STDERR_FILENO) && !env("NO_COLOR")) {}

  DiagSink& sink() { return sink_; }
  void flush() {
    fmt::print(stderr, "{}", render_diagnostics(sink_, printed_, color_, !quiet_));
    printed_ = sink_.all().size();
  }
  int fail(const std::string& message) {
    flush();
    fmt::print(stderr, "ktx-compile: error: {}\n", message);
    return 1;
  }
  // True (and printed) when errors were found so far.
  bool failed() {
    flush();
    return sink_.errors() > 0;
  }
  void say(const std::string& line) {
    if (!quiet_) fmt::print(stderr, "{}\n", line);
  }

 private:
  DiagSink sink_;
  size_t printed_ = 0;
  bool quiet_;
  bool color_;
};

input::ModelInputs model_inputs(const Options& options, const ConsumedModel& consumed) {
  input::ModelInputs inputs;
  inputs.gguf_path = options.model;
  inputs.moving = consumed.begun();
  inputs.locked = !consumed.files.empty();
  if (!options.hf_config.empty()) inputs.hf_config_path = options.hf_config;
  if (!options.tokenizer.empty()) inputs.tokenizer_path = options.tokenizer;
  if (options.trust == "config") inputs.trust = input::Trust::Config;
  if (options.trust == "gguf") inputs.trust = input::Trust::Gguf;
  inputs.all_differences = options.hf_config_details;
  inputs.accept = arch::accept_architecture;
  return inputs;
}

// Tensors that no module uses, by reason: kept for --export-gguf, never run.
void report_extra_tensors(const ir::ModuleGraph& graph, DiagSink& diags) {
  constexpr size_t kNamed = 3;
  std::map<std::string, std::vector<std::string>> by_reason;
  for (const ir::ModuleGraph::ExtraTensor& extra : graph.extra_tensors) {
    by_reason[extra.reason].push_back(extra.tensor);
  }
  for (const auto& [reason, tensors] : by_reason) {
    const size_t named = std::min(kNamed, tensors.size());
    std::string names = join(std::span(tensors).first(named), ", ");
    if (tensors.size() > named) names += fmt::format(" and {} more", tensors.size() - named);
    diags.note({}, "", fmt::format("skipped: {} ({})", names, reason));
  }
}

// The end tokens of generation_config.json end an answer too.
void add_end_tokens(input::ModelSource& source) {
  std::vector<int32_t>& eog = source.tokenizer.eog;
  for (int64_t id : source.generation.eos_token_ids) eog.push_back(static_cast<int32_t>(id));
  std::sort(eog.begin(), eog.end());
  eog.erase(std::unique(eog.begin(), eog.end()), eog.end());
}

// The options that change a plan's bytes, for its provenance.
std::vector<std::string> byte_options(const Options& options, int64_t ctx) {
  std::vector<std::string> out;
  if (!options.trust.empty()) out.push_back("--trust=" + options.trust);
  if (ctx != 0) out.push_back(fmt::format("--ctx={}", ctx));
  if (options.max_batch != 1) out.push_back(fmt::format("--max-batch={}", options.max_batch));
  if (options.kv_budget_bytes)
    out.push_back(fmt::format("--kv-budget={}", options.kv_budget_bytes));
  if (options.vram_bytes) out.push_back(fmt::format("--vram={}", options.vram_bytes));
  if (!options.draft.empty())
    out.push_back(drafts_by_prediction(options) ? "--draft=mtp" : "--draft");
  if (!options.mmproj.empty()) out.push_back("--mmproj");
  for (const std::string& given : options.merge) {
    out.push_back(fmt::format("--merge at scale {}", parse_adapter(given).scale));
  }
  if (options.drop_unused) out.push_back("--drop-unused");
  if (options.bf16_inputs) out.push_back("--inputs=bf16");
  if (!options.prefer_text.empty()) out.push_back("--prefer=" + options.prefer_text);
  if (!options.target.empty()) out.push_back("--target");
  return out;
}

// Hash and size of each input; the GGUF counts by its headers (its weights have
// hashes of their own in the plan).
Result<std::vector<plan::PlanProvenance::Input>> input_hashes(const Options& options,
                                                              const input::ModelSource& source) {
  std::vector<plan::PlanProvenance::Input> inputs;
  for (size_t shard = 0; shard < source.gguf.shards().size(); ++shard) {
    inputs.push_back({"gguf", static_cast<int64_t>(source.gguf.shards()[shard].file.bytes().size()),
                      hash_bytes(source.gguf.header(static_cast<int>(shard)))});
  }
  const std::pair<const char*, const std::vector<std::string>&> texts[] = {
      {"rules", options.rules},
      {"draft-rules", options.draft_rules},
      {"mmproj-rules", options.mmproj_rules},
      {"expert-profile", options.expert_profiles},
  };
  for (const auto& [kind, paths] : texts) {
    for (const std::string& path : paths) {
      const std::string text = KTX_TRY(read_text_file(path));
      inputs.push_back(
          {kind, static_cast<int64_t>(text.size()), hash_bytes(std::as_bytes(std::span(text)))});
    }
  }
  for (const std::string& given : options.merge) {
    const MappedFile file = KTX_TRY(MappedFile::open(parse_adapter(given).path));
    inputs.push_back(
        {"merge", static_cast<int64_t>(file.bytes().size()), hash_bytes(file.bytes())});
  }
  return inputs;
}

// The command that shows most of the plan and works as it stands.
std::string first_command(const std::string& path, const plan::PlanContents& contents) {
  const std::string plan = shell_word(path);
  if (!plan::no_text_reason(contents.facts).empty()) return "serve " + plan;
  const bool chats = !contents.chat_template.source.empty() &&
                     text::ChatTemplate::parse(contents.chat_template.source).ok();
  return chats ? "chat " + plan : fmt::format("generate {} --prompt 'Once upon a time'", plan);
}

void summarize(Reporter& reporter, const std::string& path, const plan::PlanContents& contents,
               double seconds) {
  uint64_t weights = 0;
  for (const plan::GgufTensorRecord& tensor : contents.gguf.tensors) weights += tensor.size;
  const std::string drafter =
      contents.drafter.empty()
          ? ""
          : fmt::format(", a drafter of {}", human_bytes(contents.drafter.size()));
  const std::string tower =
      contents.tower.empty()
          ? ""
          : fmt::format(", a projector of {}", human_bytes(contents.tower.size()));
  const size_t hosts = contents.target.hosts.size();
  const std::string launcher =
      hosts > 1 ? fmt::format("mpirun -n {} --bind-to none ", hosts) : std::string();
  reporter.say(
      fmt::format("{}: {} in {} tensors, {} steps{}{}, packed in {:.1f} s; run it with: "
                  "{}ktx-run {}{}",
                  path, human_bytes(weights), contents.gguf.tensors.size(), contents.steps.size(),
                  drafter, tower, seconds, launcher, first_command(path, contents),
                  contents.drafter.empty() ? "" : " --draft on"));
}

// --split-by-host
Status write_parts(Reporter& reporter, const std::string& path) {
  const plan::PlanFile plan = KTX_TRY(plan::PlanFile::open(path));
  const std::vector<std::string> parts = KTX_TRY(plan::write_host_parts(plan));
  for (size_t rank = 0; rank < parts.size(); ++rank) {
    reporter.say(fmt::format("{}: the part of host {}, which reads it instead of {}", parts[rank],
                             plan->target.hosts[rank].name, path));
  }
  return {};
}

// What was lost, tensor by tensor.
void report_rounding(Reporter& reporter, const std::vector<passes::RoundedWeights>& rounded) {
  size_t merged = 0;
  bool exports = true;
  for (const passes::RoundedWeights& weights : rounded) {
    if (weights.keeps_format && weights.to == name(DType::F32)) {
      reporter.say(fmt::format("merged: {}: in F32, not rounded", weights.name));
    } else {
      reporter.say(
          fmt::format("{}: {} to {}: rms error {:.2f} % of the weights' rms, largest {:.3g}",
                      weights.merged ? "merged, rounded" : "rounded", weights.name, weights.to,
                      100 * weights.relative_rms, weights.largest_error));
    }
    merged += weights.merged ? 1 : 0;
    exports = exports && weights.keeps_format;
  }
  if (rounded.empty()) return;
  reporter.say(fmt::format("changed: {} tensors in all{}; {}", rounded.size(),
                           merged > 0 ? fmt::format(", {} of them with adapters", merged) : "",
                           exports ? "--export-gguf gives a GGUF with the adapters in its weights"
                                   : "the plan has no --export-gguf"));
}

void report_reuse(Reporter& reporter, const std::string& path, const plan::ReusedBlobs& reused) {
  reporter.say(fmt::format("reused: {} of {} packed weights, {} of {}, are those of {}",
                           reused.count, reused.of_count, human_bytes(reused.bytes),
                           human_bytes(reused.of_bytes), printable(path)));
}

}  // namespace

int run_compile(const Options& options) {
  Reporter reporter(options.quiet);
  const Timer timer;

  // 1. The model: header, config, metadata. No weight is touched.
  ConsumedModel consumed;
  if (options.consume) {
    const Result<bool> finished = finish_move(options);
    if (!finished) return reporter.fail(finished.error().message);
    if (*finished) {
      reporter.say(fmt::format("{}: was already complete; it is in its place now", options.output));
      return 0;
    }
    auto opened = ConsumedModel::open(options.model);
    if (!opened && !options.consume_if_possible) return reporter.fail(opened.error().message);
    if (opened) consumed = opened.take();
  }
  Result<input::ModelSource> source =
      input::open_model(model_inputs(options, consumed), reporter.sink());
  if (!source) return reporter.fail(source.error().message);
  if (reporter.failed()) return 1;

  // 2. The rules; all mistakes of all files are reported.
  passes::CompileState state;
  reporter.sink().set_policy(policy_of(options));
  state.diags = &reporter.sink();
  read_rule_files(options.rules, state);
  read_target_file(options, state);
  if (options.split_by_host && state.target.hosts.empty()) {
    return reporter.fail("--split-by-host takes a target with hosts (--target; docs/hosts.md)");
  }
  state.check.for_target = state.check.target_given;
  state.bf16_inputs = options.bf16_inputs;
  state.prefer = options.prefer;
  if (reporter.failed()) return 1;

  // 3. The module graph, bound to the tensors.
  Result<ir::ModuleGraph> graph = arch::build_graph(*source, reporter.sink(), options.ctx);
  if (!graph) return reporter.fail(graph.error().message);
  report_extra_tensors(*graph, reporter.sink());
  if (reporter.failed()) return 1;
  state.modules = graph.take();
  if (!state.check.target_given) {
    state.target = target::detect_host();
    state.target.gpus = target::detect_gpus();
    state.check.target_given = !state.target.gpus.empty();
  }
  set_run_shape(options, state);
  read_expert_profiles(options, state);
  if (reporter.failed()) return 1;
  state.config = &source->config;

  const auto merge = read_merge(options, *source, state.modules);
  if (!merge) return reporter.fail(merge.error().message);

  // 4. The drafter of --draft, a plan of its own, before the model's devices are full.
  if (!options.mmproj.empty()) {
    const Status one = check_hosts_of_tower(state);
    if (!one) return reporter.fail(one.error().message);
  }
  std::optional<DrafterPlan> drafter;
  if (!options.draft.empty()) {
    Result<DrafterPlan> made = DrafterPlan::make(options, *source, state);
    if (!made) return reporter.fail(made.error().message);
    drafter.emplace(made.take());
    if (const Status left = drafter->leave_room(state); !left) {
      return reporter.fail(left.error().message);
    }
    state.taps = drafter->taps();
  }

  // Likewise what reads images for it.
  std::optional<TowerPlan> tower;
  if (!options.mmproj.empty()) {
    Result<TowerPlan> made = TowerPlan::make(options, *source, state);
    if (!made) return reporter.fail(made.error().message);
    tower.emplace(made.take());
    if (const Status left = tower->leave_room(state); !left) {
      return reporter.fail(left.error().message);
    }
    take_images(tower->plan().facts.image, state);
  }

  // 5. The passes: rules, places, steps, kernels, memory.
  passes::PassOptions pass_options;
  pass_options.stop_after = options.stop_after;
  pass_options.print_after = options.print_after;
  pass_options.print = [](std::string_view pass, const std::string& text) {
    fmt::print(stderr, "# after {}\n{}", pass, text);
  };
  if (options.time_passes) {
    pass_options.timing = [](std::string_view pass, double seconds) {
      fmt::print(stderr, "{:>22}  {:8.3f} ms\n", pass, seconds * 1e3);
    };
  }
  const Status passed = passes::run_passes(state, pass_options);
  if (!passed) {
    return reporter.failed() ? 1 : reporter.fail(passed.error().message);
  }
  reporter.flush();
  if (*merge) {
    const Status consent = check_consent(**merge, options, state.modules);
    if (!consent) return reporter.fail(consent.error().message);
  }
  if (options.emit == "module-ir") fmt::print("{}", ir::print(state.modules));
  if (options.emit == "step-ir") fmt::print("{}", program::print(state.program));
  if (options.emit == "launches") fmt::print("{}", list_launches(state.program, state.target));
  if (!options.emit.empty() || !options.stop_after.empty()) return 0;

  // 6. Tokenizer and chat template, checked now rather than at the first prompt.
  add_end_tokens(*source);
  const std::string text_file = options.tokenizer.empty() ? options.model : options.tokenizer;
  check_tokenizer(source->tokenizer, text_file, reporter.sink());
  passes::EmitOptions emit;
  emit.tokenizer = text::serialize(source->tokenizer);
  emit.bos_id = source->tokenizer.ids.bos;
  emit.eos_id = source->tokenizer.ids.eos;
  const auto templates = templates_to_use(options, source->chat_templates);
  if (!templates) return reporter.fail(templates.error().message);
  emit.chat_template =
      check_chat_template(*templates, source->tokenizer, options.model, reporter.sink());
  if (reporter.failed()) return 1;

  // 7. The plan: tables, then weights streamed on all cores, then the rename.
  emit.default_ctx = options.ctx == kLargestCtx ? state.check.shape.ctx : options.ctx;
  emit.max_batch = options.max_batch;
  emit.kv_budget_bytes = options.kv_budget_bytes;
  emit.isa = std::string(name(state.target.cpu.isa));
  emit.carry_unused = !options.drop_unused;
  emit.merge = merge->get();
  emit.merged = options.merged_before;
  emit.options = byte_options(options, emit.default_ctx);
  Result<std::vector<plan::PlanProvenance::Input>> hashes = input_hashes(options, *source);
  if (!hashes) return reporter.fail(hashes.error().message);
  emit.inputs = hashes.take();
  if (drafter) {
    emit.drafter = drafter->bytes();
    emit.inputs.push_back({"drafter", std::ssize(emit.drafter), drafter->plan().identity});
  }
  if (tower) {
    emit.tower = tower->bytes();
    emit.image = tower->plan().facts.image;
    emit.inputs.push_back({"mmproj", std::ssize(emit.tower), tower->plan().identity});
  }
  Result<plan::PlanContents> contents = passes::make_contents(state, *source, emit);
  if (!contents) return reporter.fail(contents.error().message);
  if (options.self_tests > 0) {
    Result<std::string> made = make_self_test(options, *source, state.modules, contents->facts);
    if (!made) return reporter.fail(made.error().message);
    contents->self_test = made.take();
  }
  const plan::PlanContents summary = *contents;
  std::optional<plan::PlanFile> reuse;
  if (!options.reuse.empty()) {
    Result<plan::PlanFile> opened = plan::PlanFile::open(options.reuse);
    if (!opened) return reporter.fail(opened.error().message);
    reuse.emplace(opened.take());
  }
  Progress progress("packing", options.quiet && !options.progress);
  const Result<passes::PackedWeights> packed = passes::emit_plan(
      options.output, contents.take(), *source,
      {.threads = options.threads,
       .progress = [&](uint64_t done, uint64_t total) { progress.update(done, total); },
       .reuse = reuse ? &*reuse : nullptr,
       .merge = merge->get(),
       .move = consumed.files,
       // What was begun has no copy of its own any more.
       .move_if_possible = options.consume_if_possible && !consumed.begun()});
  progress.finish();
  if (!packed) return reporter.fail(packed.error().message + consumed.how_to_go_on(options.output));
  report_rounding(reporter, packed->rounded);
  if (reuse) report_reuse(reporter, options.reuse, packed->reused);
  summarize(reporter, options.output, summary, timer.seconds());
  if (packed->moved) {
    reporter.say(
        fmt::format("{0} was moved into it; ktx-run inspect {1} --export-gguf {0} gives "
                    "it back",
                    shell_word(options.model), shell_word(options.output)));
  }
  if (!options.split_by_host) return 0;
  if (const Status parts = write_parts(reporter, options.output); !parts) {
    return reporter.fail(parts.error().message);
  }
  return 0;
}

}  // namespace ktx::tools

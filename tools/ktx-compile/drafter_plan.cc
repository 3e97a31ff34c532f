#include "tools/ktx-compile/drafter_plan.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "lib/arch/build_graph.h"
#include "lib/arch/draft_head.h"
#include "lib/input/draft_head_source.h"
#include "lib/input/file_kind.h"
#include "lib/passes/cost/estimate_text.h"
#include "lib/passes/emit_plan.h"
#include "lib/support/mapped_file.h"
#include "lib/target/target.h"
#include "lib/text/tokenizer/tokenizer_data.h"
#include "tools/ktx-compile/compile_inputs.h"
#include "tools/option_readers.h"
#include "tools/progress.h"

namespace ktx::tools {
namespace {

constexpr std::string_view kWhose = "the drafter";

// What the drafter may use of each GPU.
void limit_to_share(const ir::ModuleGraph& drafter, const ir::ModuleGraph& model,
                    target::Target& target) {
  constexpr double kBesideWeights = 1.2;  // caches and activations
  const auto own = static_cast<double>(weight_bytes(drafter));
  const auto others = static_cast<double>(weight_bytes(model));
  const auto gpus = static_cast<double>(target.gpus.size());
  for (target::GpuTarget& gpu : target.gpus) {
    const auto memory = static_cast<double>(gpu.memory_bytes);
    const double left = memory - kBesideWeights * others / gpus;
    gpu.memory_bytes = static_cast<uint64_t>(std::max(left, memory * own / (own + others)));
  }
}

// The drafter before its passes.
struct DraftModel {
  DiagSink sink;
  std::optional<input::ModelSource> own;  // of a small model or a head
  passes::CompileState state;
  std::vector<int32_t> given_taps;    // of the model's hidden states, those that it reads
  std::vector<int32_t> draft_tokens;  // of a head: the model's token of each logit
};

Status build_prediction(const Options& options, const input::ModelSource& model, DraftModel& made) {
  passes::CompileState& state = made.state;
  read_rule_files(options.rules, state);  // its modules are the model's, as far as rules go
  state.modules = KTX_TRY(arch::build_prediction_graph(model, made.sink, options.ctx));
  made.given_taps = {passes::kBehindFinalNorm};
  return {};
}

Status build_small_model(const Options& options, DraftModel& made) {
  input::ModelInputs inputs;
  inputs.gguf_path = options.draft;
  inputs.header_only_ok = options.check;
  inputs.accept = arch::accept_architecture;
  made.own = KTX_TRY(input::open_model(inputs, made.sink));
  read_rule_files(options.draft_rules, made.state);
  made.state.modules = KTX_TRY(arch::build_graph(*made.own, made.sink, options.ctx));
  made.state.config = &made.own->config;
  return {};
}

// What the head keeps of its own for draft tokens further on is what its layer gives.
Status build_head(const Options& options, input::GgufFile gguf, const input::ModelSource& model,
                  const ir::ModelFacts& facts, DraftModel& made) {
  arch::DraftHead head = arch::read_draft_head(gguf, facts, made.sink);
  const std::vector<std::string> shared = arch::shared_tensors(gguf, model.gguf, made.sink);
  if (made.sink.errors() > 0) return {};
  gguf.borrow(KTX_TRY(input::GgufFile::open(model.gguf.path(), {.header_only_ok = options.check})),
              shared);
  made.own = KTX_TRY(input::draft_head_source(std::move(gguf), model, made.sink));
  read_rule_files(options.draft_rules, made.state);
  made.state.modules =
      KTX_TRY(arch::build_head_graph(*made.own, head, facts, made.sink, options.ctx));
  made.state.taps = {made.state.modules.facts.layers};
  made.given_taps = std::move(head.layers);
  made.draft_tokens = std::move(head.tokens);
  return {};
}

Status build_from_file(const Options& options, const input::ModelSource& model,
                       const ir::ModelFacts& facts, DraftModel& made) {
  // A file that cannot be read so is the small model's to complain about.
  Result<input::GgufFile> gguf =
      input::GgufFile::open(options.draft, {.header_only_ok = options.check, .tables = true});
  if (!gguf || !input::is_draft_head(*gguf)) return build_small_model(options, made);
  return build_head(options, gguf.take(), model, facts, made);
}

// With what is the same for the model and its drafter, and its share of GPUs.
Result<std::unique_ptr<DraftModel>> build_drafter(const Options& options,
                                                  const input::ModelSource& model,
                                                  const passes::CompileState& model_state) {
  auto made = std::make_unique<DraftModel>();
  passes::CompileState& state = made->state;
  state.diags = &made->sink;
  state.target = model_state.target;
  state.target.hosts.clear();  // it runs on the first one, where tokens are sampled
  state.check = model_state.check;
  state.bf16_inputs = model_state.bf16_inputs;
  state.prefer = model_state.prefer;
  KTX_TRY(drafts_by_prediction(options)
              ? build_prediction(options, model, *made)
              : build_from_file(options, model, model_state.modules.facts, *made));
  if (made->sink.errors() > 0) return first_error(made->sink, kWhose, "");
  limit_to_share(state.modules, model_state.modules, state.target);
  Options own = options;
  own.vram_bytes = 0;  // the model's state has been limited
  if (own.ctx == kLargestCtx) own.ctx = 0;
  own.kv_budget_bytes = 0;
  set_run_shape(own, state);
  return made;
}

Status write_drafter(const Options& options, const input::ModelSource& model,
                     const passes::CompileState& model_state, const std::string& path) {
  const std::unique_ptr<DraftModel> made = KTX_TRY(build_drafter(options, model, model_state));
  passes::CompileState& state = made->state;
  const Status passed = passes::run_passes(state, {});
  if (!passed) return first_error(made->sink, kWhose, passed.error().message);
  hand_on_warnings(made->sink, kWhose, *model_state.diags);
  passes::EmitOptions emit;
  if (made->own && made->given_taps.empty()) {
    emit.tokenizer = text::serialize(made->own->tokenizer);
    emit.bos_id = made->own->tokenizer.ids.bos;
    emit.eos_id = made->own->tokenizer.ids.eos;
  }
  emit.given_taps = made->given_taps;
  emit.draft_tokens = made->draft_tokens;
  emit.default_ctx = options.ctx == kLargestCtx ? 0 : options.ctx;
  emit.max_batch = options.max_batch;
  emit.isa = std::string(name(state.target.cpu.isa));
  emit.carry_unused = false;
  const input::ModelSource& source = made->own ? *made->own : model;
  Result<plan::PlanContents> contents = passes::make_contents(state, source, emit);
  if (!contents) return first_error(made->sink, kWhose, contents.error().message);
  Progress progress("packing the drafter", options.quiet);
  const auto written = passes::emit_plan(
      path, contents.take(), source,
      {.threads = options.threads,
       .progress = [&](uint64_t done, uint64_t total) { progress.update(done, total); }});
  progress.finish();
  if (!written) return written.error();
  return {};
}

// A plan as it is may be the drafter of another model.
Status check_states(const std::string& file, const plan::PlanFacts& drafter,
                    const ir::ModelFacts& model) {
  if (!drafter.reads_hidden()) return {};
  bool fits = drafter.given_states() == std::ssize(drafter.given_taps) * model.hidden;
  for (const passes::Tap tap : drafter.given_taps) {
    fits = fits && tap >= passes::kBehindFinalNorm && tap <= model.layers;
  }
  if (fits && drafter.vocab_size == model.vocab) return {};
  return Error{
      fmt::format("{}: it reads {} hidden values of layers {}, of a model with {} tokens; "
                  "{} has {} layers of {} and {} tokens",
                  file, drafter.given_states(), fmt::join(drafter.given_taps, ", "),
                  drafter.vocab_size, model.family, model.layers, model.hidden, model.vocab)};
}

bool is_plan(const std::string& path) {
  const Result<MappedFile> file = MappedFile::open(path);
  return file && input::file_kind(file->bytes()) == input::FileKind::KtxPlan;
}

}  // namespace

bool drafts_by_prediction(const Options& options) {
  return options.draft == "mtp";
}

Result<DrafterPlan> DrafterPlan::make(const Options& options, const input::ModelSource& model,
                                      const passes::CompileState& state) {
  OwnFile own;
  std::string path = options.draft;
  if (drafts_by_prediction(options) || !is_plan(path)) {
    path = options.output + ".drafter";
    own.reset(new std::string(path));
    KTX_TRY(write_drafter(options, model, state, path));
  }
  plan::PlanFile plan = KTX_TRY(plan::PlanFile::open(path));
  const std::string no_text = plan::no_text_reason(plan->facts);
  if (!no_text.empty()) return Error{fmt::format("{}: {}", options.draft, no_text)};
  KTX_TRY(check_states(options.draft, plan->facts, state.modules.facts));
  return DrafterPlan(std::move(own), std::move(plan));
}

std::span<const std::byte> DrafterPlan::bytes() const {
  return plan_->file;
}

const plan::PlanView& DrafterPlan::plan() const {
  return plan_.view();
}

Status DrafterPlan::leave_room(passes::CompileState& model) const {
  return take_memory_of(plan_.view(), model.check.shape, model);
}

std::vector<passes::Tap> DrafterPlan::taps() const {
  return plan_->facts.given_taps;
}

Result<std::string> estimate_drafter(const Options& options, const input::ModelSource& model,
                                     passes::CompileState& model_state) {
  if (!drafts_by_prediction(options) && is_plan(options.draft)) {
    return Error{
        fmt::format("{}: use `ktx-run inspect` to see what a plan takes; --estimate needs a "
                    "GGUF, or --draft mtp",
                    options.draft)};
  }
  const std::unique_ptr<DraftModel> made = KTX_TRY(build_drafter(options, model, model_state));
  passes::PassOptions passes;
  passes.stop_after = "check-memory";
  const Status passed = passes::run_passes(made->state, passes);
  if (!passed) return first_error(made->sink, kWhose, passed.error().message);
  hand_on_warnings(made->sink, kWhose, *model_state.diags);
  const passes::Estimate estimate = KTX_TRY(passes::estimate_of(made->state));
  model_state.taps = made->given_taps;
  for (const passes::DeviceUse& device : estimate.devices) {
    take_from(model_state, device.name, device.total() - device.reserve_bytes);
  }
  return fmt::format("\ndrafter ({}); each draft token costs one token of it\n{}",
                     drafts_by_prediction(options) ? "multi-token prediction" : options.draft,
                     passes::print_estimate(estimate));
}

}  // namespace ktx::tools

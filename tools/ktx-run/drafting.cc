#include "tools/ktx-run/drafting.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "lib/runtime/draft/lookup_drafter.h"
#include "lib/runtime/draft/plan_drafter.h"
#include "lib/runtime/draft/prediction_drafter.h"
#include "lib/support/strings.h"
#include "lib/text/tokenizer/token_map.h"
#include "lib/text/tokenizer/tokenizer_data.h"
#include "tools/ktx-run/loaded_model.h"

namespace ktx::tools {
namespace {

// Draft tokens of a sequence in a pass of models with states of a fixed size, each of which keeps
// those states once more: 75 MiB in Qwen3-Next-80B.
constexpr int64_t kMostWithStates = 4;

Result<text::Tokenizer> draft_tokenizer(const runtime::Engine& engine) {
  return text::Tokenizer::create(KTX_TRY(text::parse_tokenizer_data(engine.plan().tokenizer)));
}

// How the tokens of the two stand for each other; says so where they differ.
runtime::DraftVocabulary vocabulary_of(const text::Tokenizer& model, const text::Tokenizer& draft,
                                       std::string& note) {
  runtime::DraftVocabulary vocabulary;
  if (text::same_tokens(model, draft)) return vocabulary;
  text::TokenMap map = text::map_tokens(model, draft);
  const auto known =
      std::count_if(map.back.begin(), map.back.end(), [](int32_t id) { return id >= 0; });
  note = fmt::format(
      "its tokenizer differs: {} of its {} tokens have the text of a token of the model, and drafting stops at the others",
      known, map.back.size());
  vocabulary.to_draft = std::move(map.forth);
  vocabulary.from_draft = std::move(map.back);
  return vocabulary;
}

// `within`: that of the model's own plan, which `path` is then.
Result<std::unique_ptr<runtime::Drafter>> open_plan(const std::string& path, bool within,
                                                    const EngineFlags& engine_flags,
                                                    const runtime::Engine& model,
                                                    const text::Tokenizer& tokenizer,
                                                    std::vector<std::string>& notes) {
  runtime::EngineOptions options = engine_options(engine_flags);
  options.pool = model.pool();
  options.largest_ctx = false;
  // Where its rotary factors end, longer texts get no draft tokens.
  const plan::PlanFile plan = KTX_TRY(plan::PlanFile::open(path, {.drafter = within}));
  const int64_t rotary_ctx = plan->facts.rotary_ctx;
  options.ctx = rotary_ctx > 0 ? std::min(model.ctx(), rotary_ctx) : model.ctx();
  options.max_batch = model.max_batch();
  // The model's working memory, which it has touched little of by now.
  options.reserved_bytes = model.memory().working_bytes();
  options.count_experts = false;
  options.expert_memory_bytes.reset();
  options.drafter = within;
  options.rollback_tokens = std::min(model.rollback_tokens(), kMostWithStates);
  auto engine = KTX_TRY(runtime::Engine::open(path, options));
  const plan::MemoryEstimate& memory = engine->memory();
  const std::string name = within ? "the plan's drafter" : path;
  notes.push_back(fmt::format("{} drafts: {} of weights, {} of cache, {} of activations", name,
                              human_bytes(memory.weight_bytes), human_bytes(memory.kv_bytes),
                              human_bytes(memory.arena_bytes)));
  const auto blame = [&](const std::string& why) -> Error {
    return Error{fmt::format("{}: {}", path, why)};
  };
  const std::string no_text = plan::no_text_reason(engine->plan().facts);
  if (!no_text.empty()) return blame(no_text);
  if (engine->plan().facts.reads_hidden()) {
    if (!within)
      return blame("layers that read hidden states draft for the model of their own plan alone");
    auto drafter = runtime::make_prediction_drafter(std::move(engine), model);
    if (!drafter) return blame(drafter.error().message);
    return drafter;
  }
  const Result<text::Tokenizer> draft = draft_tokenizer(*engine);
  if (!draft) return blame(draft.error().message);
  std::string differs;
  runtime::DraftVocabulary vocabulary = vocabulary_of(tokenizer, *draft, differs);
  if (!differs.empty()) notes.push_back(fmt::format("{}: {}", name, differs));
  auto drafter =
      runtime::make_plan_drafter(std::move(engine), std::move(vocabulary), model.vocab_size());
  if (!drafter) return blame(drafter.error().message);
  return drafter;
}

}  // namespace

runtime::SpeculationOptions speculation_options(const DraftFlags& flags) {
  runtime::SpeculationOptions options;
  options.most = std::min(flags.lookup > 0 ? flags.lookup : flags.most, runtime::kMaxDraftTokens);
  options.adaptive = flags.adaptive;
  return options;
}

namespace {

// Rows of logits that a sequence needs in a pass.
int64_t rows_for_drafts(const DraftFlags& flags) {
  return flags.on() || flags.accept >= 0 ? speculation_options(flags).most + 1 : 1;
}

}  // namespace

Status make_room_for_drafts(const DraftFlags& flags, const std::string& model_plan,
                            runtime::EngineOptions& options) {
  const int64_t rows = rows_for_drafts(flags);
  options.sequence_logits = std::max(options.sequence_logits, rows);
  options.rollback_tokens = std::min(rows - 1, kMostWithStates);
  if (flags.plan.empty() || !options.largest_ctx) return {};
  options.beside = std::make_shared<const plan::PlanFile>(KTX_TRY(
      plan::PlanFile::open(flags.within() ? model_plan : flags.plan, {.drafter = flags.within()})));
  return {};
}

Result<std::shared_ptr<runtime::Drafter>> open_drafter(const DraftFlags& flags,
                                                       const std::string& model_plan,
                                                       const EngineFlags& engine_flags,
                                                       const runtime::Engine& engine,
                                                       const text::Tokenizer& tokenizer,
                                                       std::vector<std::string>& notes) {
  std::shared_ptr<runtime::Drafter> drafter;
  if (!flags.on()) return drafter;
  if (flags.plan.empty()) {
    drafter = runtime::make_lookup_drafter();
  } else {
    drafter = KTX_TRY(open_plan(flags.within() ? model_plan : flags.plan, flags.within(),
                                engine_flags, engine, tokenizer, notes));
  }
  return drafter;
}

}  // namespace ktx::tools

// The model behind a server, with everything that the protocols need of it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lib/runtime/engine/engine.h"
#include "lib/runtime/scheduler/batch_scheduler.h"
#include "lib/server/filters/call_filter.h"
#include "lib/server/filters/grammar_cache.h"
#include "lib/server/filters/reasoning_budget.h"
#include "lib/server/filters/reasoning_filter.h"
#include "lib/server/models/offered_plans.h"
#include "lib/server/models/served_adapters.h"
#include "lib/text/answers/reasoning.h"
#include "lib/text/answers/tool_calls.h"
#include "lib/text/chat_template/chat_template.h"
#include "lib/text/tokenizer/tokenizer.h"
#include "lib/vision/viewer.h"

namespace ktx::server {

struct ServedModel {
  std::unique_ptr<runtime::Engine> engine;
  std::unique_ptr<vision::Viewer> viewer;  // null: the model reads text only
  std::optional<text::Tokenizer> tokenizer;
  std::optional<text::ChatTemplate> chat_template;  // none: the model has none that works
  std::optional<text::ChatTemplate> tool_template;  // instead of it where tools are offered
  bool shows_tools = true;                          // the template does, where they are offered
  text::ToolCallFormat tool_format = text::ToolCallFormat::None;
  std::optional<text::ReasoningTags> reasoning;
  std::optional<ReasoningTokens> reasoning_tokens;  // with `reasoning`
  std::optional<CallTokens> call_tokens;            // with a chat template
  std::unique_ptr<GrammarCache> grammars;
  runtime::SamplingOptions sampling;                  // for what a request leaves open
  std::optional<uint64_t> seed;                       // likewise; none: another for each
  int64_t max_tokens = -1;                            // likewise; -1: until the model ends
  std::optional<bool> reasons_first;                  // likewise; none: the template decides
  ReasoningLimit reasoning_limit;                     // likewise
  runtime::Pooling pooling = runtime::Pooling::Last;  // of embeddings
  ServedAdapters adapters;                            // of the engine
  std::string id;                                     // "qwen3moe-q4_k_m"
  std::vector<std::string> aliases;                   // other names
  std::string path;                                   // of the plan
  std::shared_ptr<const PlanSummary> summary;
  int64_t created = 0;  // seconds since 1970
  double load_seconds = 0;
  bool verbose = false;               // answers have `__verbose`
  bool allow_control_tokens = false;  // of requests, in the texts of messages and tools
  bool context_shift = false;         // answers go on when the context is full
  // Last: it uses the engine.
  std::unique_ptr<runtime::BatchScheduler> scheduler;

  // Its answers are messages of channels, read token by token (text::HarmonyParser).
  bool speaks_harmony() const { return tool_format == text::ToolCallFormat::Harmony; }
  bool reasons() const { return reasoning.has_value() || speaks_harmony(); }
  ReasoningForm reasoning_form() const { return {speaks_harmony(), reasoning}; }
  const text::ChatTemplate& template_for(bool with_tools) const {  // with a chat template
    return with_tools && tool_template ? *tool_template : *chat_template;
  }
  const plan::PlanFacts& facts() const { return engine->plan().facts; }
  // The seed of a request that has none.
  uint64_t new_seed() const;
};

// How the model's makers made vectors of texts; the last token's where nothing is said.
runtime::Pooling pooling_of(const plan::PlanFacts& facts);

// Settings of a server for the model's chat.
struct ChatSettings {
  std::optional<std::string> chat_template;  // its text, instead of the plan's
  std::string tool_format = "auto";          // a name of tool_call_formats.def, auto or none
  bool allow_control_tokens = false;
};

// Fills what follows from the plan: tokenizer, template, formats. Messages begin with the plan's
// path.
Status complete_model(ServedModel& model, const std::string& plan_path,
                      const ChatSettings& settings = {});

}  // namespace ktx::server

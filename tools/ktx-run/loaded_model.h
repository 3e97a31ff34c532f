// A plan opened for a command: engine, tokenizer and chat template.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lib/runtime/draft/speculation.h"
#include "lib/runtime/engine/engine.h"
#include "lib/runtime/sampling/sampler.h"
#include "lib/support/result.h"
#include "lib/text/chat_template/chat_template.h"
#include "lib/text/tokenizer/tokenizer.h"
#include "tools/ktx-run/options.h"

namespace ktx::tools {

struct LoadedModel {
  std::unique_ptr<runtime::Engine> engine;
  text::Tokenizer tokenizer;
  std::optional<text::ChatTemplate> chat_template;  // none: the model has none that works
  double load_seconds = 0;
  std::vector<std::string> notes;                     // the engine's, and the drafter's
  std::shared_ptr<runtime::Drafter> drafter;          // null: nothing drafts
  std::unique_ptr<runtime::Speculation> speculation;  // with it; for Session::speculate()
};

// Messages begin with the plan's path.
Result<text::Tokenizer> tokenizer_of(const std::string& path, const plan::PlanView& plan);
// Fails where the model generates no text: an encoder, a reranker.
Status check_generates(const std::string& path, const plan::PlanFacts& facts);
// Makes what --chat-template and its file say the model's chat template. Fails where it has none
// then.
Status choose_template(const std::string& plan, const ChatTemplateFlags& flags, LoadedModel& model);
Result<LoadedModel> load_model(const std::string& plan, const EngineFlags& flags,
                               const DraftFlags& draft = {});

runtime::EngineOptions engine_options(const EngineFlags& flags);
runtime::SamplingOptions sampling_options(const SamplingFlags& flags);

}  // namespace ktx::tools

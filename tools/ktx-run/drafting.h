// What drafts tokens for a model (lib/runtime/draft), as the options ask for it.
//
//   --lookup 8                     from the text itself
//   --draft small.ktxplan          a small model
//   --draft on                     the drafter within the model's plan
//
// Opened behind the model: the small one has the model's context, batch and threads, and what is
// left of the memory.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "lib/runtime/draft/drafter.h"
#include "lib/runtime/draft/speculation.h"
#include "lib/runtime/engine/engine.h"
#include "lib/support/result.h"
#include "lib/text/tokenizer/tokenizer.h"
#include "tools/ktx-run/options.h"

namespace ktx::tools {

runtime::SpeculationOptions speculation_options(const DraftFlags& flags);

// Sets options of the model's engine: rows of logits for draft tokens, and what `--ctx max` must
// leave to the draft plan.
Status make_room_for_drafts(const DraftFlags& flags, const std::string& model_plan,
                            runtime::EngineOptions& options);

// Null: nothing was asked for. `notes` gets what is worth telling. Messages name the file.
Result<std::shared_ptr<runtime::Drafter>> open_drafter(const DraftFlags& flags,
                                                       const std::string& model_plan,
                                                       const EngineFlags& engine_flags,
                                                       const runtime::Engine& engine,
                                                       const text::Tokenizer& tokenizer,
                                                       std::vector<std::string>& notes);

}  // namespace ktx::tools

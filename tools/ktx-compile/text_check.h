// The chat template of a plan, parsed and probed at compile time: a template that
// fails is found here and not at a user's first message.
#pragma once

#include <span>

#include "lib/input/model_source.h"
#include "lib/plan/plan_facts.h"
#include "lib/support/diag.h"
#include "lib/text/tokenizer_data.h"

namespace ktx::tools {

// What the plan stores. A template that does not parse or cannot render a plain
// conversation is a warning: the plan still generates, and chat says why it cannot.
plan::PlanChatTemplate check_chat_template(std::span<const input::ChatTemplate> templates,
                                           const text::TokenizerData& tokenizer, DiagSink& diags);

}  // namespace ktx::tools

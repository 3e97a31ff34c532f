// Tries tokenizer and chat template when a model is checked or compiled, so that a fault is
// found then and not at a user's first message.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "lib/input/model_source.h"
#include "lib/plan/plan_facts.h"
#include "lib/support/diag.h"
#include "lib/text/tokenizer/tokenizer_data.h"
#include "tools/ktx-compile/options.h"

namespace ktx::tools {

// An error when the tokenizer cannot be made at all; a warning when it may split text
// in another way than the model was taught. `file` is where it came from.
void check_tokenizer(const text::TokenizerData& tokenizer, const std::string& file,
                     DiagSink& diags);

// The model's templates, or the one that --chat-template or --chat-template-file gives. Fails where
// that is none.
Result<std::vector<input::ChatTemplate>> templates_to_use(
    const Options& options, const std::vector<input::ChatTemplate>& of_model);

// What the plan stores. A template that does not parse or cannot render a plain
// conversation is a warning: the plan still generates, and chat says why it cannot.
plan::PlanChatTemplate check_chat_template(std::span<const input::ChatTemplate> templates,
                                           const text::TokenizerData& tokenizer,
                                           const std::string& file, DiagSink& diags);

// Notes what the templates do: what they read and add, and where they differ from the one that
// the family is known by. For those that parse. `architecture`: the GGUF's, "" where it is unknown.
void describe_chat_template(const plan::PlanChatTemplate& templates,
                            const std::string& architecture, const std::string& file,
                            DiagSink& diags);

// All three, of the files beside a config.json, where there are any.
void check_text_of_folder(const std::string& config_path, DiagSink& diags);

}  // namespace ktx::tools

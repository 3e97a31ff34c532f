// --tokenize and --render-chat: tokenizer and chat template of a model, without a plan.
#pragma once

#include "tools/ktx-compile/options.h"

namespace ktx::tools {

// Token ids of a file as one JSON array on stdout, without BOS.
int run_tokenize(const Options& options);

// The prompt that the chat template makes of a case, on stdout.
int run_render_chat(const Options& options);

}  // namespace ktx::tools

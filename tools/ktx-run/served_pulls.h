// What a server does where clients may pull models (serve --allow-pull): ktx-pull fetches the GGUF,
// and ktx-compile makes a plan of it in the server's folder. Both are programs of their own; the
// server connects to nothing.
//
//   models/hf.co/OWNER/NAME:Q4_K_M.ktxplan      is offered as "hf.co/OWNER/NAME:Q4_K_M"
#pragma once

#include <memory>

#include "lib/server/models/model_fetches.h"
#include "lib/support/result.h"
#include "tools/ktx-run/options.h"

namespace ktx::tools {

// Null without --allow-pull. `options` outlives it. Fails where a program is missing.
Result<std::shared_ptr<server::ModelFetches>> open_pulls(const Options& options);

// "" where --allow-pull goes with the other options, else a message.
std::string pulls_mistake(const ServeFlags& flags);

}  // namespace ktx::tools

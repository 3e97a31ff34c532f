// Draft tokens of a small model: a plan of its own on an engine of its own, whose cache follows the
// texts of the large one.
//
//   auto small = KTX_TRY(Engine::open("small.ktxplan", {.ctx = large->ctx(), ...}));
//   auto drafter = KTX_TRY(make_plan_drafter(std::move(small), {}, large->vocab_size()));
//
// It holds a sequence for each text. Wrong draft tokens are taken back; what the large model
// made instead is computed with the next draft tokens. It samples as the text's own sampler would,
// with the same random numbers: where the two models agree on the probabilities they draw the same
// token. All texts of a pass are drafted side by side.
//
// A text that its cache has no room for gets no draft tokens. A plan with states of a fixed size
// (delta nets) drafts as many as the engine can take back (EngineOptions::rollback_tokens).
#pragma once

#include <memory>

#include "lib/runtime/draft/draft_vocabulary.h"
#include "lib/runtime/draft/drafter.h"
#include "lib/runtime/engine/engine.h"

namespace ktx::runtime {

// `model_vocab`: the tokens of the model that verifies.
Result<std::unique_ptr<Drafter>> make_plan_drafter(std::unique_ptr<Engine> engine,
                                                   DraftVocabulary vocabulary, int64_t model_vocab);

}  // namespace ktx::runtime

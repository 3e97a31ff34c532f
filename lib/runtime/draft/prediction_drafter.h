// Guesses of a model's own layers for multi-token prediction: a plan within the model's plan
// (plan::PlanOpenOptions::drafter), on an engine of its own, which reads the model's hidden states.
//
//   model       token   t0  t1  t2        the final norm gives  h0  h1  h2
//   prediction  reads   t0  t1  t2  t3    beside                0   h0  h1  h2   -> what follows t3
//
// Further guesses read its own last norm in the place of the model's. What it computed so goes when
// the model has verified them, and is computed again from the model's hidden states with the next
// guesses: its cache holds nothing else.
//
// The hidden states come with every pass (Drafter::take_hidden) and are held until the layer has
// read them, at most kMostHeld of a text. Where a text's beginning was not computed here (the model
// had it in its cache, or in a session's file), the layer's own prefix cache may have it; else
// it reads the text from where hidden states begin.
#pragma once

#include <memory>

#include "lib/runtime/draft/drafter.h"
#include "lib/runtime/engine/engine.h"

namespace ktx::runtime {

// `model_vocab`: the tokens of the model that verifies. Fails for plans of another kind.
Result<std::unique_ptr<Drafter>> make_prediction_drafter(std::unique_ptr<Engine> engine,
                                                         int64_t model_vocab);

}  // namespace ktx::runtime

// Draft tokens from layers that read the model's hidden states: its own for multi-token prediction,
// or a draft head (EAGLE-3). A plan within the model's plan (plan::PlanOpenOptions::drafter), on an
// engine of its own.
//
//   model        token   t0  t1  t2       its hidden states are  h0  h1  h2
//   prediction   reads   t0  t1  t2  t3   beside                 0   h0  h1  h2
//   draft head   reads       t1  t2  t3   beside                     h0  h1  h2
//
// and both predict what follows t3.
//
// Those of a prediction layer are what the final norm gives; further draft tokens read its own last
// norm in their place. A head reads what several layers of the model read, and for further draft
// tokens what its own layer gave, which comes beside them (PlanFacts::given_width); its logits may
// be of some of the tokens only (PlanView::draft_tokens). What was computed for further draft
// tokens goes when the model has verified them, and is computed again from the model's hidden
// states with the next draft tokens: the cache holds nothing else.
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

// `model` verifies; only its sizes are used. Fails for plans of another kind, or of another
// model.
Result<std::unique_ptr<Drafter>> make_prediction_drafter(std::unique_ptr<Engine> engine,
                                                         const Engine& model);

}  // namespace ktx::runtime

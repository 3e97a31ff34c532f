// A draft head (EAGLE-3) for a model of any config, with random weights, as converters write it:
// the model's heads and widths in one layer, three of its hidden states, fewer tokens.
//
//   GgufWriter writer = KTX_TRY(synthesise_head(config_of_the_model, options));
//
// Its draft tokens are those of chance: `bench --draft on --draft-accept` makes them right as often
// as asked. Not for families that differ in their layers' widths: the first layer's are taken.
#pragma once

#include "tools/dev/synth/synth_model.h"

namespace ktx::synth {

// Of `options` the types, layers (of the model), seed, strong, pool_bytes and the vocabulary count.
Result<input::GgufWriter> synthesise_head(const input::HfConfig& model,
                                          const SynthOptions& options);

}  // namespace ktx::synth

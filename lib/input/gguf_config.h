// Derives the HF config that a GGUF's metadata and tensor shapes imply, and compares it with a
// config.json.
//
// The keys of the family map one to the other (lib/families/config_key.h). Floats are compared as
// the decimal numbers they were written as (f32 9.99999997e-07 is 1e-06), and values with the same
// meaning are equal: kv heads of MLA (1 in new files,
// all heads in old ones), yarn_log_multiplier (0.1 * mscale_all_dim), absent
// keys whose meaning is the other side's value, block counts with or without
// multi-token prediction layers, llama3 scaling as a tensor `rope_freqs.weight`.
//
// The result has the normal form of hf_config.h and is complete for the families of
// family_table.def: keys absent on both sides have their default meaning (origin Default) where the
// table has one.
#pragma once

#include "lib/input/gguf.h"
#include "lib/input/hf_config.h"
#include "lib/support/diag.h"

namespace ktx::input {

enum class Trust {
  Neither,  // a structural disagreement is an error; elsewhere the config wins
  Config,   // the config wins, with a warning
  Gguf,     // the GGUF wins, with a warning
};

// The config that the GGUF alone amounts to (origins Gguf and Default). Errors in
// `diags`: metadata of the wrong type or out of range. Notes: what had to be
// concluded from tensors. An architecture that the table does not know gives
// model_type = architecture and nothing else.
//
// llama3 scaling is a tensor in GGUF files: rope_scaling.rope_type is then
// "llama3" without parameters, and `rope_freqs.weight` holds what each frequency
// is divided by. Prefer that tensor wherever it exists.
HfConfig config_from_gguf(const GgufFile& gguf, DiagSink& diags);

// `config` (parsed, normalised) and what the GGUF says as one. Reports fills
// (one note for each direction), disagreements (naming both values) and values
// of the wrong type or out of range. `model_type` and keys that no row of the
// table names stay as the config has them.
//
// Without `all_differences` three structural disagreements are the config of another model, and
// one message says how many keys differ.
HfConfig merge_configs(const HfConfig& config, const GgufFile& gguf, Trust trust, DiagSink& diags,
                       bool all_differences = false);

}  // namespace ktx::input

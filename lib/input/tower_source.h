// Opens the GGUF of what reads images for a model (mmproj; a family with a `tower`).
//
//   ModelSource tower = KTX_TRY(tower_source(std::move(gguf), model, diags));
//
// All that it is stands in its GGUF; it has no tokenizer. Safe for untrusted files.
#pragma once

#include "lib/input/gguf.h"
#include "lib/input/model_source.h"
#include "lib/support/diag.h"
#include "lib/support/result.h"

namespace ktx::input {

// Fails where the file is no projector, one of an unknown type, or one for other models.
Result<ModelSource> tower_source(GgufFile gguf, const GgufFile& model, DiagSink& diags);

}  // namespace ktx::input

// Opens the GGUF of a draft head (a family with `draft_head`), beside that of its model.
//
//   if (is_draft_head("eagle3.gguf")) ...
//   ModelSource head = KTX_TRY(draft_head_source(std::move(gguf), model, diags));
//
// All that it is stands in its GGUF: config.json beside it, if any, is another model's. Its
// tokenizer, where it has one, must be the model's, and is left out here. Safe for untrusted files.
#pragma once

#include "lib/input/gguf.h"
#include "lib/input/model_source.h"
#include "lib/support/diag.h"
#include "lib/support/result.h"

namespace ktx::input {

bool is_draft_head(const GgufFile& gguf);

// `gguf`: opened with GgufOptions::tables, and with the tensors that it borrows.
Result<ModelSource> draft_head_source(GgufFile gguf, const ModelSource& model, DiagSink& diags);

}  // namespace ktx::input

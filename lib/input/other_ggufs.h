// Detects GGUFs that hold no language model. Users often name the wrong file of a folder:
//
//   KTX_TRY(check_language_model(gguf));
//   mmproj.gguf: this is a projector for images or audio (mmproj) (general.type is 'mmproj'),
//   not a causal language model; give the GGUF of the language model beside it
//
// It decides by general.type, the architecture and the absence of weights, before anything else is
// read: otherwise the message would be about a missing tokenizer. Unknown architectures pass; they
// may be language models, and the builder of the module graph knows which ones it supports.
#pragma once

#include "lib/input/gguf.h"
#include "lib/support/result.h"

namespace ktx::input {

Status check_language_model(const GgufFile& gguf);

}  // namespace ktx::input

// Whether a GGUF holds a language model at all. People give the file beside it:
//
//   KTX_TRY(check_language_model(gguf));
//   mmproj.gguf: this is a projector for images or audio (mmproj) (general.type is 'mmproj'),
//   not a causal language model; give the GGUF of the language model beside it
//
// Says so by general.type, the architecture and the lack of weights, before anything else of the
// file is looked at: its tokenizer would be the wrong thing to complain of. Architectures that
// are in no table pass; they may be language models, and whoever builds one knows which it can.
#pragma once

#include "lib/input/gguf.h"
#include "lib/support/result.h"

namespace ktx::input {

Status check_language_model(const GgufFile& gguf);

}  // namespace ktx::input

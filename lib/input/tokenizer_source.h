// A model's tokenizer from GGUF metadata as text::TokenizerData.
//
//   TokenizerData data = KTX_TRY(read_gguf_tokenizer(gguf));
//
// Tokenizers of HF folders are read by lib/text/tokenizer/hf_tokenizer.h.
#pragma once

#include "lib/input/gguf.h"
#include "lib/support/result.h"
#include "lib/text/tokenizer/tokenizer_data.h"

namespace ktx::input {

// From tokenizer.ggml.*; works on vocabulary-only files. Safe for untrusted files:
// a key of the wrong kind is an error that names file, key, what was found and
// what was expected.
Result<text::TokenizerData> read_gguf_tokenizer(const GgufFile& gguf);

}  // namespace ktx::input

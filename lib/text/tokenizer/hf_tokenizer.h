// Loads tokenizers of Hugging Face repositories.
//
//   HfTokenizer hf = KTX_TRY(load_hf_tokenizer("model/tokenizer.json"));
//   Tokenizer tokenizer = KTX_TRY(Tokenizer::create(std::move(hf.data)));
//
// tokenizer.json: BPE, byte-level or over characters with byte fallback; its own split patterns
// are used. tokenizer.model: SentencePiece BPE. A feature that ktx lacks (WordPiece, Unigram,
// lower-casing) is an error, never ignored.
//
// Everything here is safe for untrusted files. Errors begin with the file's name.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "lib/support/result.h"
#include "lib/text/tokenizer/tokenizer_data.h"

namespace ktx::text {

struct HfTokenizer {
  TokenizerData data;
  std::optional<std::string> chat_template;  // the one named "default" where there are several
};

// `path` is a tokenizer.json, a tokenizer.model or a folder with one (the .json is
// preferred). Beside it are read, where they exist: tokenizer_config.json (roles of
// tokens, chat template), added_tokens.json, generation_config.json (end tokens),
// chat_template.jinja.
Result<HfTokenizer> load_hf_tokenizer(const std::string& path);

// The single files; errors carry no name.
Result<TokenizerData> parse_tokenizer_json(std::string_view json);
Result<TokenizerData> parse_sentencepiece_model(std::span<const std::byte> bytes);

}  // namespace ktx::text

// Small vocabularies for tests of lib/text.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "lib/text/tokenizer/byte_alphabet.h"
#include "lib/text/tokenizer/tokenizer.h"

namespace ktx::testing {

struct TinyToken {
  std::string text;
  text::TokenType type = text::TokenType::Normal;
};

// All 256 bytes (ids 0 to 255, in the byte alphabet), then `more`.
inline Result<text::TokenizerData> tiny_bpe(const std::vector<TinyToken>& more,
                                            const std::vector<std::string>& merges,
                                            std::string_view pre = "gpt-2") {
  std::vector<std::string> tokens(256);
  std::vector<int32_t> types(256, 1);
  for (int byte = 0; byte < 256; ++byte) {
    const char c = static_cast<char>(byte);
    text::append_in_alphabet({&c, 1}, tokens[static_cast<size_t>(byte)]);
  }
  for (const TinyToken& token : more) {
    tokens.push_back(token.text);
    types.push_back(static_cast<int32_t>(token.type));
  }
  const std::vector<std::string_view> token_views(tokens.begin(), tokens.end());
  const std::vector<std::string_view> merge_views(merges.begin(), merges.end());
  text::TokenizerSource source;
  source.model = "gpt2";
  source.pre = pre;
  source.tokens = token_views;
  source.token_types = types;
  source.merges = merge_views;
  return make_tokenizer_data(source);
}

// <unk> <s> </s>, 256 byte tokens (ids 3 to 258), then `more` with falling scores.
inline Result<text::TokenizerData> tiny_spm(const std::vector<TinyToken>& more) {
  std::vector<std::string> tokens = {"<unk>", "<s>", "</s>"};
  std::vector<int32_t> types = {2, 3, 3};
  std::vector<float> scores(3, 0);
  for (int byte = 0; byte < 256; ++byte) {
    constexpr std::string_view kDigits = "0123456789ABCDEF";
    tokens.push_back(std::string("<0x") + kDigits[static_cast<size_t>(byte / 16)] +
                     kDigits[static_cast<size_t>(byte % 16)] + ">");
    types.push_back(6);
    scores.push_back(0);
  }
  for (const TinyToken& token : more) {
    tokens.push_back(token.text);
    types.push_back(static_cast<int32_t>(token.type));
    scores.push_back(-static_cast<float>(tokens.size()));
  }
  const std::vector<std::string_view> views(tokens.begin(), tokens.end());
  text::TokenizerSource source;
  source.model = "llama";
  source.tokens = views;
  source.scores = scores;
  source.token_types = types;
  return make_tokenizer_data(source);
}

}  // namespace ktx::testing

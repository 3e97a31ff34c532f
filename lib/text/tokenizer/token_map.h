// The tokens of one tokenizer in those of another one: how a draft model reads and continues the
// texts of a model with another vocabulary.
//
//   map_tokens(model, draft)
//     forth[31] = {8, 9}     "Hello" of the model is "Hel" "lo" there
//     back[5]   = 77         " world" of the draft model is token 77 here; -1: no token has its
//     text
//
// Tokens are compared by their bytes. BOS, and the token that ends a text, stand for those of the
// other one; control tokens for one of the same name.
#pragma once

#include <cstdint>
#include <vector>

#include "lib/text/tokenizer/tokenizer.h"

namespace ktx::text {

// Every token that both have is the same one in both: ids may be passed on as they are.
bool same_tokens(const Tokenizer& a, const Tokenizer& b);

struct TokenMap {
  std::vector<std::vector<int32_t>> forth;  // by token of the first; empty: nothing stands for it
  std::vector<int32_t> back;                // by token of the second
};
TokenMap map_tokens(const Tokenizer& first, const Tokenizer& second);

}  // namespace ktx::text

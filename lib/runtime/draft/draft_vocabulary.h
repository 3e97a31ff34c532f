// How the tokens of a model and of its drafter correspond to each other: the same ids, or, where
// their tokenizers differ, the ids of the same text.
//
//   model      31 "Hello"         the drafter has it as 8 "Hel" 9 "lo":   to_draft[31] = {8, 9}
//   drafter     5 " world"        the model has it as 77:                 from_draft[5] = 77
//
// Draft tokens that the model has no token for end a draft. lib/text/tokenizer/token_map.h makes
// it.
#pragma once

#include <cstdint>
#include <vector>

namespace ktx::runtime {

struct DraftVocabulary {
  // By token of the model; empty: the ids are the same.
  std::vector<std::vector<int32_t>> to_draft;
  std::vector<int32_t> from_draft;  // by token of the drafter; -1: none

  bool same() const { return to_draft.empty(); }
};

}  // namespace ktx::runtime

// Speculative decoding by prompt lookup: drafts the continuation of a text from its own earlier
// tokens. The model verifies it in one pass (speculation.h).
//
//   a b c d e a b c   ->   d e a b ...     (the last three tokens stood there before)
//
// The latest earlier match wins; three equal tokens are tried first, then two. Costs one scan
// of the text, some microseconds per ten thousand tokens.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace ktx::runtime {

// At most `most` tokens; none when nothing repeats. A draft ends before an image (ids below 0).
std::vector<int32_t> ngram_draft(std::span<const int32_t> text, int64_t most);

}  // namespace ktx::runtime

// A token mask for constrained decoding: which tokens may come next. Receives every token of
// the answer.
//
//   filter.prepare()                  beside the step, on another thread
//   allowed = filter.allowed()        a bit for each token, set where it may come
//   forbid_others(allowed, logits)    on the host; GPUs take the bits (gpu_logits.h)
//   filter.accept(token)
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "lib/support/result.h"

namespace ktx::runtime {

// A bit for each token, the first in the lowest bit of the first word. Tokens behind the last word
// are not allowed.
using TokenBits = std::span<const uint32_t>;

class TokenFilter {
 public:
  virtual ~TokenFilter() = default;
  // What may come next, valid until accept(). Fails when nothing may.
  virtual Result<TokenBits> allowed() = 0;
  virtual Status accept(int32_t id) = 0;
  // The work of allowed() that can be done in advance. Called at most once between two tokens,
  // on another thread than the others, never at their time.
  virtual void prepare() {}
};

inline bool has_token(TokenBits bits, int32_t id) {
  const auto word = static_cast<size_t>(id / 32);
  return id >= 0 && word < bits.size() && (bits[word] >> (id % 32) & 1) != 0;
}

// -infinity for all tokens but these.
void forbid_others(TokenBits allowed, std::span<float> logits);

}  // namespace ktx::runtime

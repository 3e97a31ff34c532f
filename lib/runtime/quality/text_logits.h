// The logits behind the tokens of a text, computed in passes of as many rows as the engine has
// room for (EngineOptions::sequence_logits).
//
//   TextLogits text(engine);
//   KTX_TRY(text.compute(tokens, 256, nullptr, [&](int64_t i, std::span<const float> logits) {
//     logprob[i] = logits_of(tokens[i + 1]) ...      // i from 256 on
//   }));
//
// On the CPU the logits are those of any other division into passes, bit for bit.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <span>

#include "lib/runtime/engine/engine.h"

namespace ktx::runtime {

// What a pass can give: a vocabulary of 262,144 takes 1 MiB a row.
inline constexpr int64_t kScoredRows = 64;

class TextLogits {
 public:
  // `engine` outlives it, and no other passes come between.
  explicit TextLogits(Engine& engine) : engine_(engine), sequence_(engine.new_sequence()) {}

  // Called for tokens[i] with the logits of the token behind it, on the engine's threads, several
  // at once; it must not throw.
  using Visit = std::function<void(int64_t i, std::span<const float> logits)>;
  int64_t rows_of_pass() const;

  // Appends tokens; `visit` sees the logits behind each of them from number `first` on. True in
  // `stop` (null: nothing) ends it with Forward::Stopped.
  Result<Forward> compute(std::span<const int32_t> tokens, int64_t first,
                          const std::atomic<bool>* stop, const Visit& visit);

 private:
  Engine& engine_;
  Sequence sequence_;
};

}  // namespace ktx::runtime

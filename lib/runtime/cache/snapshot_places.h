// Where the states of a text are worth a snapshot (state_pool.h): every 512 tokens, and near the
// end of a prompt, from where the same prompt is answered again and the next one of a conversation
// goes on. That is behind the last message, since templates begin an answer otherwise when it is
// history.
//
//   <|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n<think>\n
//                                ^ here; without such a token, before the last one
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace ktx::runtime {

inline constexpr int64_t kSnapshotEvery = 512;  // tokens

// By rising number of tokens, fewer than those of the prompt. `parting`: where other texts that
// begin alike go on differently, 0: nowhere. `ends_message` may be empty.
std::vector<int64_t> snapshot_places(std::span<const int32_t> prompt, int64_t parting,
                                     const std::function<bool(int32_t)>& ends_message);

}  // namespace ktx::runtime

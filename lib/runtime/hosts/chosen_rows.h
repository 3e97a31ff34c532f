// The rows of a value that go to another host for the experts there, or come back: those of the
// pairs that group_experts has put in front, or of their tokens.
//
//   order    3 0 5 | 1 2 4     pairs of token and choice, two a token
//   offsets  0 2 3             of two experts: the first 3 pairs are theirs
//   rows     3 0 5             of a value with a row for each pair
//            1 0 2             of one with a row for each token; each once
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace ktx::runtime {

// Empty if order or offsets are damaged. `rows_per_token`: 1, or as many as pairs.
std::optional<std::vector<uint32_t>> chosen_rows(std::span<const int32_t> order,
                                                 std::span<const int32_t> offsets, int64_t tokens,
                                                 int64_t rows_per_token);

}  // namespace ktx::runtime

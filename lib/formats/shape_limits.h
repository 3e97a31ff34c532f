// Limits of sane shapes. Wide enough for any model to come, small enough that products of
// two of them fit 63 bits: what the rules of ops (op_rules.h) compute cannot overflow where
// these hold.
#pragma once

#include <cstdint>

namespace ktx {

inline constexpr int64_t kMaxDim = int64_t{1} << 26;       // width of a value or a weight
inline constexpr int64_t kMaxRowElems = int64_t{1} << 28;  // of a value's whole row
inline constexpr int64_t kMaxBlobElems = int64_t{1} << 48;
inline constexpr int64_t kMaxHeads = int64_t{1} << 16;         // heads or experts
inline constexpr int64_t kMaxKvTokenElems = int64_t{1} << 24;  // of a slot

}  // namespace ktx

// Limits of plausible shapes: large enough for future models, small enough that the product of two
// fits in 63 bits. Within them the rules of ops (op_rules.h) cannot overflow.
#pragma once

#include <cstdint>

namespace ktx {

inline constexpr int64_t kMaxDim = int64_t{1} << 26;       // width of a value or a weight
inline constexpr int64_t kMaxRowElems = int64_t{1} << 28;  // of a value's whole row
inline constexpr int64_t kMaxBlobElems = int64_t{1} << 48;
inline constexpr int64_t kMaxHeads = int64_t{1} << 16;   // heads or experts
inline constexpr int64_t kMaxChosenPositions = 1 << 16;  // of a token, by sparse attention
inline constexpr int64_t kMaxIndexBlock = 256;           // positions, of block attention
inline constexpr int64_t kMaxCompressed = 1 << 16;       // positions of an entry
inline constexpr int64_t kMaxDeltaHead = 1024;           // of a gated delta rule
inline constexpr int64_t kMaxImageSide = 4096;           // pixels that a tower reads, and patches
inline constexpr int64_t kMaxImagePatches = 1 << 16;     // of an image that a tower reads
inline constexpr int64_t kMaxImagePixels = int64_t{1} << 30;
inline constexpr int64_t kMaxImageParts = 64;                  // of the row of an image's token
inline constexpr int64_t kMaxKvTokenElems = int64_t{1} << 24;  // of a slot

}  // namespace ktx

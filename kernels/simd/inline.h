// Attributes of the vector policies' functions and loops: a tile of sums stays in registers only
// where both are inlined and unrolled.
#pragma once

#define KTX_INLINE __attribute__((always_inline)) static inline
#ifdef __clang__
#define KTX_UNROLL _Pragma("unroll")
#else
#define KTX_UNROLL _Pragma("GCC unroll 16")
#endif

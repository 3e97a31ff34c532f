// Rows of kernel tables whose instruction set the built programs may have: KTX_BUILT(Avx512, row)
// is the row on x86 and nothing on ARM, and the other way round. Kernels written for AVX2 are built
// for both (simd/avx2.h).
#pragma once

#define KTX_BUILT(isa, ...) KTX_BUILT_##isa(__VA_ARGS__)

#define KTX_BUILT_Scalar(...) __VA_ARGS__
#define KTX_BUILT_Avx2(...) __VA_ARGS__
#if defined(__x86_64__)
#define KTX_BUILT_Avx512(...) __VA_ARGS__
#define KTX_BUILT_Amx(...) __VA_ARGS__
#define KTX_BUILT_Neon(...)
#define KTX_BUILT_Dotprod(...)
#else
#define KTX_BUILT_Avx512(...)
#define KTX_BUILT_Amx(...)
#define KTX_BUILT_Neon(...) __VA_ARGS__
#define KTX_BUILT_Dotprod(...) __VA_ARGS__
#endif

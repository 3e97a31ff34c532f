// 16 rows of a panel as AVX-512 registers: what panel_codes.h and matmul_panel_loop.h
// need beyond kernels/simd. Included by *_avx512.cc and *_amx.cc only.
#pragma once

#include "kernels/simd/vec_avx512.h"

namespace ktx::kernels {
namespace {

// I: 64 bytes, or 16 words of 32 bits, one for each row.
struct PanelAvx512 : Avx512 {
  using F = __m512;
  using I = __m512i;
  // A register tile has 12 integer and 12 float sums. Two panels share what is loaded of a token
  // (Zen 4: 0.78 of the peak; one panel and 12 tokens 0.72 to 0.76).
  static constexpr int kTileTokens = 6, kTilePanels = 2;

  KTX_INLINE I load64(const void* p) { return _mm512_loadu_si512(p); }
  KTX_INLINE void store64(void* p, I v) { _mm512_store_si512(p, v); }
  KTX_INLINE I zero_i() { return _mm512_setzero_si512(); }
  KTX_INLINE I set1_i(int32_t v) { return _mm512_set1_epi32(v); }
  // The 32 bits at p in every lane. From memory, also where they are needed as a scalar: else the
  // compiler loads that and broadcasts it, in a pipe of dot products on Intel's processors.
  KTX_INLINE I load_same(const void* p) {
    I all;
    asm("vpbroadcastd %1, %0" : "=v"(all) : "m"(*static_cast<const char(*)[4]>(p)));
    return all;
  }
  // Shifts of 16 and 32 bits; a byte's neighbour comes in and is to be masked.
  template <int n>
  KTX_INLINE I srl16(I v) {
    return _mm512_srli_epi16(v, n);
  }
  template <int n>
  KTX_INLINE I sll16(I v) {
    return _mm512_slli_epi16(v, n);
  }
  template <int n>
  KTX_INLINE I srl32(I v) {
    return _mm512_srli_epi32(v, n);
  }
  // Byte n of every word, with its sign.
  template <int n>
  KTX_INLINE I signed_byte(I v) {
    return _mm512_srai_epi32(_mm512_slli_epi32(v, 24 - 8 * n), 24);
  }
  KTX_INLINE I and8(I v, int mask) {
    return _mm512_and_si512(v, _mm512_set1_epi8(static_cast<char>(mask)));
  }
  KTX_INLINE I and32(I v, int32_t mask) { return _mm512_and_si512(v, _mm512_set1_epi32(mask)); }
  KTX_INLINE I or_i(I a, I b) { return _mm512_or_si512(a, b); }
  // (a & mask) | (b & ~mask), byte by byte.
  KTX_INLINE I pick(I a, I b, int mask) {
    return _mm512_ternarylogic_epi32(_mm512_set1_epi8(static_cast<char>(mask)), a, b, 0xCA);
  }
  KTX_INLINE I sub8(I v, int n) {
    return _mm512_sub_epi8(v, _mm512_set1_epi8(static_cast<char>(n)));
  }
  // Bytes: three times the value, modulo 256; and how many thirds of 256 it holds.
  KTX_INLINE I triple8(I v) { return _mm512_add_epi8(v, _mm512_add_epi8(v, v)); }
  KTX_INLINE I thirds(I v) {
    const I one = _mm512_set1_epi8(1);
    const I first = _mm512_maskz_mov_epi8(_mm512_cmpge_epu8_mask(v, _mm512_set1_epi8(86)), one);
    const __mmask64 second = _mm512_cmpge_epu8_mask(v, _mm512_set1_epi8(static_cast<char>(171)));
    return _mm512_mask_add_epi8(first, second, first, one);
  }
  KTX_INLINE I add32(I a, int32_t n) { return _mm512_add_epi32(a, _mm512_set1_epi32(n)); }
  KTX_INLINE I max32(I a, I b) { return _mm512_max_epi32(a, b); }
  KTX_INLINE I min32(I a, int32_t n) { return _mm512_min_epi32(a, _mm512_set1_epi32(n)); }
  template <int n>
  KTX_INLINE I sll32(I v) {
    return _mm512_slli_epi32(v, n);
  }
  KTX_INLINE F as_float(I v) { return _mm512_castsi512_ps(v); }
  KTX_INLINE I as_int(F v) { return _mm512_castps_si512(v); }
  // (a & mask) | bits
  KTX_INLINE I or_masked(I a, int32_t mask, int32_t bits) {
    return _mm512_ternarylogic_epi32(a, _mm512_set1_epi32(mask), _mm512_set1_epi32(bits), 0xEA);
  }
  // table[byte] for bytes 0..15.
  KTX_INLINE I lookup(const uint8_t* table, I index) {
    const __m128i row = _mm_load_si128(reinterpret_cast<const __m128i*>(table));
    return _mm512_shuffle_epi8(_mm512_broadcast_i32x4(row), index);
  }
  // Bit 4 w + p of every word to bit 4 of its byte p.
  template <int w>
  KTX_INLINE I spread_bits(I v) {
    const I control = _mm512_set_epi32(0x0C0C0C0C, 0x08080808, 0x04040404, 0, 0x0C0C0C0C,
                                       0x08080808, 0x04040404, 0, 0x0C0C0C0C, 0x08080808,
                                       0x04040404, 0, 0x0C0C0C0C, 0x08080808, 0x04040404, 0);
    const I byte = _mm512_shuffle_epi8(v, _mm512_add_epi8(control, _mm512_set1_epi8(w / 2)));
    const I bits = _mm512_set1_epi32(w % 2 == 0 ? 0x08040201 : static_cast<int>(0x80402010));
    return _mm512_maskz_mov_epi8(_mm512_test_epi8_mask(byte, bits), _mm512_set1_epi8(16));
  }
  // The low or the high half of every word as an IEEE half.
  KTX_INLINE F low_halves(I v) { return _mm512_cvtph_ps(_mm512_cvtepi32_epi16(v)); }
  KTX_INLINE F high_halves(I v) { return low_halves(_mm512_srli_epi32(v, 16)); }
  KTX_INLINE I load_bytes16(const uint8_t* p) {  // 16 bytes to 16 words
    return _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  }
  // sum + codes of 4 columns (0..kLargest) times the 4 bytes at x.
  template <int kLargest>
  KTX_INLINE I dot(I sum, I codes, const int8_t* x) {
    int32_t word;
    __builtin_memcpy(&word, x, sizeof word);
    return _mm512_dpbusd_epi32(sum, codes, _mm512_set1_epi32(word));
  }
  // sum + 16-bit numbers of 2 columns times the two in `pair`.
  KTX_INLINE I dot_pair(I sum, I numbers, int32_t pair) {
    return _mm512_dpwssd_epi32(sum, numbers, _mm512_set1_epi32(pair));
  }
  // Asks for the line at p, which need not be memory of ours.
  KTX_INLINE void prefetch(const void* p) {
    _mm_prefetch(static_cast<const char*>(p), _MM_HINT_T0);
  }
  KTX_INLINE void prefetch_second(const void* p) {  // into the second cache alone
    _mm_prefetch(static_cast<const char*>(p), _MM_HINT_T1);
  }
};

}  // namespace
}  // namespace ktx::kernels

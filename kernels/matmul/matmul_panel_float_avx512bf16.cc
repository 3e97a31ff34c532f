// BF16 weights in panels times activations rounded to BF16, with vdpbf16ps: the loops of
// matmul_panel_float_loop.h over pairs of columns. The bits are those of RoundedPanelForm
// (float_panel_forms.h).
#include "kernels/matmul/float_vec_avx512.h"
// (the policy first: the loops use its macros)
#include "kernels/matmul/matmul_bf16_dots.h"
#include "kernels/matmul/matmul_panel_float_loop.h"

namespace ktx::kernels {
namespace {

// 16 rows times two columns.
struct PairLaneMath {
  using W = __m512i;
  using Act = __m512i;
  KTX_INLINE __m512 fma(W w, Act x, __m512 sum) {
    return _mm512_dpbf16_ps(sum, (__m512bh)w, (__m512bh)x);
  }
};

// Activations are pairs of BF16 numbers, an element each.
struct PairPanelForm {
  using Math = PairLaneMath;
  using Elem = int32_t;
  static constexpr int kCols = 2, kParts = 1, kActs = 1, kBytes = 64;
  static constexpr bool kPlain = false, kFlush = false;  // the instructions always flush
  template <int p>
  KTX_INLINE __m512i part(const uint8_t* w) {
    return _mm512_loadu_si512(w);
  }
  template <int p>
  KTX_INLINE __m512i act(const Elem* x) {
    return _mm512_set1_epi32(*x);
  }
  static void activations(const float* x, int64_t count, Elem* out) {
    int64_t k = 0;
    for (; k + 32 <= count; k += 32, out += 16) _mm512_storeu_si512(out, rounded(x + k));
    if (k == count) return;
    alignas(64) float rest[32] = {};
    __builtin_memcpy(rest, x + k, static_cast<size_t>(count - k) * sizeof(float));
    const __mmask16 pairs = static_cast<__mmask16>((1u << ((count - k + 1) / 2)) - 1);
    _mm512_mask_storeu_epi32(out, pairs, rounded(rest));
  }

 private:
  static __m512i rounded(const float* x) {
    return (__m512i)_mm512_cvtne2ps_pbh(_mm512_loadu_ps(x + 16), _mm512_loadu_ps(x));
  }
};

}  // namespace

void matmul_panel16_bf16_dots_gemv(const MatmulArgs& args) {
  float_panel_gemv<FloatAvx512, PairPanelForm>(args);
}
void matmul_panel16_bf16_dots_gemm(const MatmulArgs& args) {
  float_panel_gemm<FloatAvx512, PairPanelForm>(args);
}

}  // namespace ktx::kernels

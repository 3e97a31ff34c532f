// BF16 weights times activations rounded to BF16, with vdpbf16ps: the loop of
// matmul_float_loop.h over pairs. The bits are those of RoundedForm (float_forms.h).
#include "kernels/matmul/float_vec_avx512.h"
// (the policy first: the loops use its macros)
#include "kernels/matmul/matmul_bf16_dots.h"
#include "kernels/matmul/matmul_float_loop.h"

namespace ktx::kernels {
namespace {

struct PairMath {
  using Elem = uint16_t;
  using W = __m512i;
  static constexpr int kStep = 32;
  KTX_INLINE W load(const void* p) { return _mm512_loadu_si512(p); }
  KTX_INLINE void store(Elem* p, W v) { _mm512_storeu_si512(p, v); }
  KTX_INLINE __m512 fma(W w, W x, __m512 sum) {
    return _mm512_dpbf16_ps(sum, (__m512bh)w, (__m512bh)x);
  }
};

struct PairForm {
  using Math = PairMath;
  static constexpr bool kPlain = false, kFlush = false;  // the instructions always flush
  static constexpr int kUnit = 32, kParts = 1;
  template <int p>
  KTX_INLINE __m512i part(const uint8_t* w) {
    return PairMath::load(w);
  }
  template <int p>
  KTX_INLINE __m512i act_part(const float* x) {
    return (__m512i)_mm512_cvtne2ps_pbh(_mm512_loadu_ps(x + 16), _mm512_loadu_ps(x));
  }
};

}  // namespace

void matmul_bf16_dots_skinny(const MatmulArgs& args) {
  float_skinny<FloatAvx512, PairForm>(args);
}
void matmul_bf16_dots_gemm(const MatmulArgs& args) {
  float_gemm<FloatAvx512, PairForm>(args);
}

}  // namespace ktx::kernels

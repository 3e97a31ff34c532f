// Steps of one token (of a router and of experts: of few) that one launch does together: in decode
// a layer is bound by starting and ending kernels, so fewer of them are faster. Each is the
// composition of launchers of this folder, and rounds as that does but for the order of two
// factors.
//
//   launch_one_products   y_i (+)= w_i . norm(x) + bias_i         rms_norm, up to four matmuls
//   launch_one_gate_up    y = glu(gate . norm(x), up . norm(x))
//   launch_one_router     n = norm(x), logits = w . n             rms_norm, a product in F32
//   launch_one_choices    ids, weights = router(logits); h = the experts' gate and up of x
//   launch_one_sum        y (+)= the chosen experts' down of h, weighted
//   launch_one_experts    the last two: the second asks for its weights while the first still
//                         runs. A shared expert of the format and shape of the others is one more
//                         choice of every token.
//
// The norm is left out where `norm` is null. Products, and gate and up, take exactly one token;
// takes() says whether the formats and shapes can go together.
#pragma once

#include "kernels/cuda/common/cuda_stream.h"
#include "kernels/cuda/experts/cuda_experts.h"
#include "kernels/cuda/marlin/cuda_weight.h"
#include "kernels/gpu/gpu_limits.h"

namespace ktx::kernels {

struct CudaOneX {
  const float* x = nullptr;     // [cols], 16-byte aligned
  const float* norm = nullptr;  // [cols], 16-byte aligned, or null
  float eps = 0;
};

struct CudaOneOutput {
  CudaWeight w;
  float* y = nullptr;  // overlaps no input, and no other output
  const float* bias = nullptr;
  bool accumulate = false;
};

struct CudaOneProductsArgs {
  CudaOneX x;
  CudaOneOutput outputs[kLaunchProducts];
  int count = 0;
};
bool one_products_take(const CudaOneProductsArgs& args);
Status launch_one_products(const CudaOneProductsArgs& args, CudaStream stream);

struct CudaOneGateUpArgs {
  CudaOneX x;
  CudaWeight gate, up;
  float* y = nullptr;
  GluAttrs glu;
};
bool one_gate_up_takes(const CudaOneGateUpArgs& args);
Status launch_one_gate_up(const CudaOneGateUpArgs& args, CudaStream stream);

struct CudaOneRouterArgs {
  CudaOneX x;            // [tokens, cols]
  int64_t x_stride = 0;  // a multiple of 4
  int64_t tokens = 0;
  CudaWeight w;             // rows of floats
  float* logits = nullptr;  // [tokens, w.rows]
  int64_t logits_stride = 0;
  float* normed = nullptr;  // [tokens, w.cols]
  int64_t normed_stride = 0;
  const float* bias = nullptr;
};
bool one_router_takes(const CudaOneRouterArgs& args);
Status launch_one_router(const CudaOneRouterArgs& args, CudaStream stream);

struct CudaOneShared {
  CudaWeight gate, up, down;  // as the experts', one matrix each
  float* h = nullptr;         // [tokens, rows of gate]
  int64_t h_stride = 0;       // a multiple of 4
  // Its weight is the sigmoid of score . x; null: 1.
  const float* score_weight = nullptr;  // [cols of gate], 16-byte aligned
  float* score = nullptr;               // [tokens], written
  int64_t score_stride = 0;
};

struct CudaOneChoicesArgs {
  CudaRouterArgs router;  // ids and weights are written
  CudaWeight gate, up;
  const float* x = nullptr;  // [router.tokens, cols]
  int64_t x_stride = 0;      // a multiple of 4
  float* h = nullptr;        // row t * top_k + k: choice k of token t
  int64_t h_stride = 0;      // a multiple of 4
  GluAttrs glu;
  const float* gate_bias = nullptr;  // [experts, rows of gate], or none
  const float* up_bias = nullptr;
};
bool one_choices_take(const CudaOneChoicesArgs& args);
Status launch_one_choices(const CudaOneChoicesArgs& args, CudaStream stream);

struct CudaOneSumArgs {
  CudaWeight down;
  ExpertsAttrs attrs;
  int64_t tokens = 0;
  const int32_t* ids = nullptr;    // [tokens, top_k]; those below 0 have weight 0
  const float* weights = nullptr;  // [tokens, top_k]
  const float* h = nullptr;        // as written by launch_one_choices
  int64_t h_stride = 0;
  float* y = nullptr;  // [tokens, rows of down]
  int64_t y_stride = 0;
  const float* bias = nullptr;  // [experts, rows of down], or none
};
bool one_sum_takes(const CudaOneSumArgs& args);
Status launch_one_sum(const CudaOneSumArgs& args, CudaStream stream);
// For that, sum.ids and sum.weights have to be those of choices.router.
Status launch_one_experts(const CudaOneChoicesArgs& choices, const CudaOneSumArgs& sum,
                          const CudaOneShared* shared, CudaStream stream);
// Whether `shared` can be a choice of theirs, which are taken.
bool one_shared_takes(const CudaOneChoicesArgs& choices, const CudaOneSumArgs& sum,
                      const CudaOneShared& shared);

}  // namespace ktx::kernels

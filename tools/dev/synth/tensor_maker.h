// Tensors of a synthetic model, with random weights: matrices in the types of a mix, vectors
// in F32.
#pragma once

#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "lib/input/gguf_writer.h"
#include "tools/dev/synth/model_shape.h"
#include "tools/dev/synth/random_blocks.h"
#include "tools/dev/synth/type_mix.h"

namespace ktx::synth {

// Deviations that keep the residual stream made of the token's embedding, so that
// tokens differ and all experts are used (measured: 128 of 128, the busiest with
// 50 to 60 of 512 tokens).
inline constexpr float kSigma = 0.02f;
inline constexpr float kEmbeddingSigma = 50 * kSigma;
inline constexpr float kResidualSigma = 0.1f * kSigma;  // attn_output and ffn_down

// With `strong` weights: the deviation of a product of normed inputs, and what biases and norms
// have ten times more of.
inline constexpr float kStrongProduct = 1.5f;
inline constexpr float kStrongNoise = 10;

class TensorMaker {
 public:
  // The shape must outlive it.
  TensorMaker(const ModelShape& shape, const TypeMix& mix);

  input::GgufWriter writer;

  // A matrix in the type of the mix.
  void matrix(const std::string& name, int64_t layer, std::vector<int64_t> shape,
              float sigma = kSigma);
  // An F32 tensor, value by value.
  template <class ValueAt>
  void values(const std::string& name, std::vector<int64_t> shape, ValueAt value_at) {
    writer.add_tensor(name, DType::F32, std::move(shape),
                      [value_at](uint64_t offset, std::span<std::byte> out) {
                        for (size_t at = 0; at < out.size(); at += 4) {
                          const float value = value_at((offset + at) / 4);
                          std::memcpy(&out[at], &value, 4);
                        }
                      });
  }
  void ones(const std::string& name, int64_t size);  // the weights of a norm
  void noise(const std::string& name, int64_t size, float sigma, float mean = 0);
  void noise(const std::string& name, std::vector<int64_t> shape, float sigma, float mean = 0);
  // A norm of a layer, where the family has it, under the name that the family's tree gives it.
  void norm(ir::Role role, int64_t layer, int64_t size);
  // The bias of the norm whose weights have that name.
  void norm_bias(const std::string& weight, int64_t size);
  // Row e is expert e's; with skew the first ones have long rows and win.
  void router(const std::string& name);
  uint64_t next_seed();

 private:
  float router_sigma() const;

  const ModelShape& s_;
  TypeMix mix_;
  MixFacts facts_;
  uint64_t tensor_count_ = 0;
  std::map<std::pair<DType, float>, std::shared_ptr<BlockPool>> pools_;
};

}  // namespace ktx::synth

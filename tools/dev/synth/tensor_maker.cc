#include "tools/dev/synth/tensor_maker.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace ktx::synth {

TensorMaker::TensorMaker(const ModelShape& shape, const TypeMix& mix) : s_(shape), mix_(mix) {
  facts_ = {s_.layers, s_.experts,      s_.heads[0] / std::max<int64_t>(s_.kv_heads[0], 1),
            s_.tied,   s_.options.seed, s_.family->has_role(ir::Role::DeltaNet)};
}

void TensorMaker::matrix(const std::string& name, int64_t layer, std::vector<int64_t> shape,
                         float sigma) {
  if (s_.options.strong) {
    const bool embedding = sigma == kEmbeddingSigma;
    sigma = embedding ? 1 : kStrongProduct / std::sqrt(static_cast<float>(shape[0]));
  }
  const DType dtype = mixed_type(mix_, facts_, name, layer, shape[0]);
  auto& pool = pools_[{dtype, sigma}];
  if (!pool) {
    pool = std::make_shared<BlockPool>(dtype, sigma, mix_bits(s_.options.seed ^ pools_.size()),
                                       s_.options.pool_bytes);
  }
  const uint64_t seed = next_seed();
  writer.add_tensor(name, dtype, std::move(shape),
                    [pool = pool, seed](uint64_t offset, std::span<std::byte> out) {
                      pool->fill(seed, offset, out);
                    });
}

void TensorMaker::ones(const std::string& name, int64_t size) {
  if (s_.options.strong) return noise(name, size, 0.02f, 1);
  values(name, {size}, [](uint64_t) { return 1.f; });
}

void TensorMaker::noise(const std::string& name, int64_t size, float sigma, float mean) {
  noise(name, std::vector<int64_t>{size}, sigma, mean);
}

void TensorMaker::noise(const std::string& name, std::vector<int64_t> shape, float sigma,
                        float mean) {
  const uint64_t seed = next_seed();
  if (s_.options.strong) sigma *= kStrongNoise;
  values(name, std::move(shape), [seed, sigma, mean](uint64_t i) {
    return mean + sigma * normal_from_bits(mix_bits(seed ^ mix_bits(i)));
  });
}

void TensorMaker::norm(ir::Role role, int64_t layer, int64_t size) {
  const families::ModuleRow* row = s_.family->find_row(role);
  if (!row || row->params[0].name == nullptr) return;  // none, or one without weights
  const bool parallel = s_.flag("use_parallel_residual").value_or(false);
  if (row->when == families::When::MlpNorm && parallel) return;
  if (row->when == families::When::SideMlpNorm && !parallel) return;
  if (row->when == families::When::BehindFirst && layer == 0) return;
  std::string_view leaf = row->params[0].tensors;  // "B.attn_norm."
  leaf.remove_prefix(std::string_view("B.").size());
  leaf = leaf.substr(0, leaf.find(" | "));
  const std::string name =
      fmt::format("blk.{}.{}{}", layer, leaf, leaf.ends_with('.') ? "weight" : "");
  const bool post = role == ir::Role::AttentionPostNorm || role == ir::Role::MlpPostNorm ||
                    role == ir::Role::DensePostNorm || role == ir::Role::ExpertsPostNorm;
  const bool whole_row =
      size != s_.head_dim_of(layer) && (role == ir::Role::QNorm || role == ir::Role::KNorm);
  // Elements that differ, where a norm of the wrong elements would not be noticed otherwise.
  const bool differ = !s_.options.strong && (post || whole_row);
  if (differ) {
    noise(name, size, 0.1f, 1);
  } else {
    ones(name, size);
  }
  if (s_.always_has(role, "bias")) norm_bias(name, size);
}

void TensorMaker::norm_bias(const std::string& weight, int64_t size) {
  noise(weight.substr(0, weight.rfind('.')) + ".bias", size, 0.02f);
}

float TensorMaker::router_sigma() const {
  return s_.options.strong ? kStrongProduct / std::sqrt(static_cast<float>(s_.hidden)) : kSigma;
}

void TensorMaker::router(const std::string& name) {
  const uint64_t seed = next_seed();
  values(name, {s_.hidden, s_.experts},
         [seed, hidden = static_cast<uint64_t>(s_.hidden), skew = s_.options.skew,
          sigma = router_sigma()](uint64_t i) {
           const auto expert = static_cast<float>(i / hidden);
           const float own = skew ? sigma * (1.f + 4.f / (1.f + expert)) : sigma;
           return own * normal_from_bits(mix_bits(seed ^ mix_bits(i)));
         });
}

uint64_t TensorMaker::next_seed() {
  return mix_bits(s_.options.seed * 0x10001 + ++tensor_count_);
}

}  // namespace ktx::synth

#include "tools/dev/synth/draft_head.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <optional>

#include "lib/families/family.h"
#include "lib/support/strings.h"
#include "tools/dev/synth/random_blocks.h"
#include "tools/dev/synth/type_mix.h"

namespace ktx::synth {
namespace {

constexpr int64_t kLogits = 32000;  // of most published heads
constexpr float kDeviation = 0.02f, kStrong = 1.5f;

class HeadSynthesiser {
 public:
  HeadSynthesiser(const input::HfConfig& model, const SynthOptions& options, TypeMix mix)
      : model_(model), options_(options), mix_(mix) {}

  Result<input::GgufWriter> run() {
    for (const families::Family* family : families::all_families()) {
      if (family->is_draft_head()) arch_ = family->gguf_arch;
    }
    hidden_ = KTX_TRY(count("hidden_size"));
    heads_ = KTX_TRY(count("num_attention_heads"));
    kv_heads_ = first("num_key_value_heads").value_or(heads_);
    head_dim_ = first("head_dim").value_or(hidden_ / heads_);
    vocab_ = KTX_TRY(count("vocab_size"));
    layers_ = options_.layers.value_or(KTX_TRY(count("num_hidden_layers")));
    inner_ = KTX_TRY(count("intermediate_size"));
    logits_ = std::min(kLogits, std::max<int64_t>(vocab_ / 2, 1));
    facts_ = {1, 0, heads_ / std::max<int64_t>(kv_heads_, 1), false, options_.seed, false};
    add_metadata();
    KTX_TRY(add_vocabulary(writer_, vocab_, options_.vocabulary));
    writer_.add_u32("general.quantization_version", 2);
    writer_.add_u32("general.file_type", mix_.file_type);
    add_tensors();
    return std::move(writer_);
  }

 private:
  std::optional<int64_t> first(const char* key) const {
    const auto list = model_.ints(key);
    if (list && !list->empty()) return list->front();
    return model_.i64(key);
  }
  Result<int64_t> count(const char* key) const {
    const auto value = first(key);
    if (value && *value > 0) return *value;
    return Error{fmt::format("{}: key '{}' is missing or no count above 0", model_.file(), key)};
  }
  void u32(const char* key, int64_t value) {
    writer_.add_u32(fmt::format("{}.{}", arch_, key), static_cast<uint32_t>(value));
  }

  void add_metadata() {
    writer_.add_string("general.architecture", arch_);
    writer_.add_string("general.type", "model");
    writer_.add_string("general.name", "synthetic head");
    u32("block_count", 1);
    u32("context_length", 2048);
    u32("embedding_length", hidden_);
    u32("feed_forward_length", inner_);
    u32("attention.head_count", heads_);
    u32("attention.head_count_kv", kv_heads_);
    u32("attention.key_length", head_dim_);
    u32("attention.value_length", head_dim_);
    u32("rope.dimension_count", head_dim_);
    u32("vocab_size", vocab_);
    u32("target_hidden_size", hidden_);
    const auto f32 = [&](const char* key, double value) {
      writer_.add_f32(fmt::format("{}.{}", arch_, key), static_cast<float>(value));
    };
    f32("rope.freq_base", model_.f64("rope_theta").value_or(10000));
    f32("attention.layer_norm_rms_epsilon", model_.f64("rms_norm_eps").value_or(1e-6));
    const auto at = [&](int64_t layer) {
      return static_cast<int32_t>(std::clamp<int64_t>(layer, 0, layers_));
    };
    writer_.add_i32s(arch_ + ".target_layers",
                     std::vector<int32_t>{at(2), at(layers_ / 2), at(layers_ - 3)});
    writer_.add_bool(arch_ + ".norm_before_residual", false);
    writer_.add_bool(arch_ + ".norm_before_fc", false);
  }

  void add_tensors() {
    const int64_t q = heads_ * head_dim_, kv = kv_heads_ * head_dim_;
    matrix("fc.weight", {3 * hidden_, hidden_});
    matrix("blk.0.attn_q.weight", {2 * hidden_, q});
    matrix("blk.0.attn_k.weight", {2 * hidden_, kv});
    matrix("blk.0.attn_v.weight", {2 * hidden_, kv});
    matrix("blk.0.attn_output.weight", {q, hidden_});
    matrix("blk.0.ffn_gate.weight", {hidden_, inner_});
    matrix("blk.0.ffn_up.weight", {hidden_, inner_});
    matrix("blk.0.ffn_down.weight", {inner_, hidden_});
    for (const char* name : {"blk.0.attn_norm.weight", "blk.0.attn_norm_2.weight",
                             "blk.0.ffn_norm.weight", "output_norm.weight"}) {
      writer_.add_tensor(name, DType::F32, {hidden_}, [](uint64_t, std::span<std::byte> out) {
        const float one = 1;
        for (size_t at = 0; at < out.size(); at += sizeof(one)) std::memcpy(&out[at], &one, 4);
      });
    }
    matrix("output.weight", {hidden_, logits_});
    std::vector<int64_t> tokens;  // spread over the vocabulary
    for (int64_t i = 0; i < logits_; ++i) tokens.push_back(i * vocab_ / logits_);
    writer_.add_table("d2t", tokens);
  }

  void matrix(const std::string& name, std::vector<int64_t> shape) {
    const float sigma =
        options_.strong ? kStrong / std::sqrt(static_cast<float>(shape[0])) : kDeviation;
    const DType dtype = mixed_type(mix_, facts_, name, 0, shape[0]);
    const uint64_t seed = mix_bits(options_.seed * 0x10001 + ++tensors_);
    auto pool = std::make_shared<BlockPool>(dtype, sigma, seed, options_.pool_bytes);
    writer_.add_tensor(
        name, dtype, std::move(shape),
        [pool, seed](uint64_t offset, std::span<std::byte> out) { pool->fill(seed, offset, out); });
  }

  const input::HfConfig& model_;
  const SynthOptions& options_;
  const TypeMix mix_;
  MixFacts facts_;
  std::string arch_;
  int64_t hidden_ = 0, heads_ = 0, kv_heads_ = 0, head_dim_ = 0, inner_ = 0;
  int64_t vocab_ = 0, layers_ = 0, logits_ = 0;
  uint64_t tensors_ = 0;
  input::GgufWriter writer_;
};

}  // namespace

Result<input::GgufWriter> synthesise_head(const input::HfConfig& model,
                                          const SynthOptions& options) {
  const auto mix = find_type_mix(options.types);
  if (!mix) return Error{fmt::format("type mix '{}' is unknown", options.types)};
  return HeadSynthesiser(model, options, *mix).run();
}

}  // namespace ktx::synth

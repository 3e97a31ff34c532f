// A GGUF with a draft head (EAGLE-3) for a model, as converters write it.
//
//   KTX_TRY(write_draft_head(gguf, dir.path("head.gguf"), {.every = 3}));
//
// It was not trained, but made to agree now and then: its attention reads the token itself for the
// most part (queries and keys are one product, of large weights) and passes its embedding on; its
// feed-forward part and its last norm are the model's. `strong` makes random weights instead, by
// which every part shows in the logits.
#pragma once

#include <cmath>
#include <cstring>
#include <functional>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "lib/formats/dtype.h"
#include "lib/input/gguf.h"
#include "lib/input/gguf_writer.h"
#include "tests/support/prediction_gguf.h"

namespace ktx::testing {

struct DraftHeadOptions {
  int every = 0;  // of the model's tokens, each n-th has no logit; 0: all have, and there is no map
  bool strong = false;
  bool own_embedding = false;  // and a width of its own where `width` says so
  int64_t width = 0;           // 0: the model's
  bool given_norm = false;
  bool normed_stream = false;
  bool rope_factors = false;
  std::vector<int32_t> layers = {};  // empty: 0, 1 and the last one's output
  uint64_t seed = 1;
  // What a mistake changes: called with the map before it is written, and with each key.
  std::function<void(std::vector<int64_t>&)> edit_map = nullptr;
  std::function<bool(const std::string& key)> leaves_out = nullptr;
};

class DraftHeadWriter {
 public:
  DraftHeadWriter(const input::GgufFile& model, const DraftHeadOptions& options)
      : model_(model), options_(options), random_(options.seed) {}

  Status write(const std::string& path) {
    const input::GgufTensor* table = model_.find("token_embd.weight");
    const input::GgufTensor* norm = model_.find("output_norm.weight");
    if (table == nullptr || norm == nullptr) return Error{"no embedding or no final norm"};
    const std::string arch(model_.architecture());
    const int64_t layers = model_.i64(arch + ".block_count").value_or(0);
    vocab_ = table->shape[1];
    model_width_ = table->shape[0];
    width_ = options_.width > 0 ? options_.width : model_width_;
    const int64_t heads = width_ / kHeadDim;
    std::vector<int32_t> taps = options_.layers;
    if (taps.empty()) taps = {0, 1, static_cast<int32_t>(layers)};

    writer_.add_string("general.architecture", "eagle3");
    writer_.add_string("general.name", "a head");
    u32("block_count", 1);
    u32("context_length", 512);
    u32("embedding_length", width_);
    u32("attention.head_count", heads);
    u32("attention.head_count_kv", options_.strong ? heads / 2 : heads);
    u32("rope.dimension_count", kHeadDim);
    u32("attention.key_length", kHeadDim);
    u32("attention.value_length", kHeadDim);
    u32("vocab_size", vocab_);
    u32("target_hidden_size", model_width_);
    writer_.add_f32("eagle3.attention.layer_norm_rms_epsilon", 1e-5f);
    writer_.add_f32("eagle3.rope.freq_base", 10000);
    if (!left_out("target_layers")) writer_.add_i32s("eagle3.target_layers", taps);
    writer_.add_bool("eagle3.norm_before_residual", options_.normed_stream);
    writer_.add_bool("eagle3.norm_before_fc", options_.given_norm);
    for (const input::GgufValue& value : model_.metadata()) {
      if (value.key.starts_with("tokenizer.ggml.")) writer_.copy(value);
    }

    const auto given = static_cast<int64_t>(taps.size()) * model_width_;
    if (options_.given_norm) gains("enc.output_norm.weight", given);
    // The last of the states, a little.
    matrix("fc.weight", given, width_, [&](int64_t row, int64_t col) {
      return col == given - model_width_ + row ? 0.1f : 0.0f;
    });
    add_attention(heads);
    add_mlp();
    gains("blk.0.attn_norm.weight", width_);
    gains("blk.0.attn_norm_2.weight", width_);
    if (options_.rope_factors) {
      floats("rope_freqs.weight", {kHeadDim / 2}, [](size_t i) { return i < 4 ? 1.0f : 4.0f; });
    }
    if (options_.own_embedding) {
      matrix("token_embd.weight", width_, vocab_, [](int64_t, int64_t) { return 0.0f; });
    }
    if (options_.strong || width_ != model_width_) {
      gains("output_norm.weight", width_);
    } else {
      copy(*norm, "output_norm.weight");
    }
    add_head(*table);
    return writer_.write(path);
  }

 private:
  static constexpr int64_t kHeadDim = 16;

  bool left_out(const std::string& key) const {
    return options_.leaves_out && options_.leaves_out(key);
  }
  void u32(const std::string& key, int64_t value) {
    if (!left_out(key)) writer_.add_u32("eagle3." + key, static_cast<uint32_t>(value));
  }
  void floats(const std::string& name, std::vector<int64_t> shape,
              const std::function<float(size_t)>& value) {
    size_t count = 1;
    for (const int64_t dim : shape) count *= static_cast<size_t>(dim);
    std::vector<float> all(count);
    for (size_t i = 0; i < count; ++i) all[i] = value(i);
    if (!left_out(name)) writer_.add_tensor(name, DType::F32, std::move(shape), float_bytes(all));
  }
  float normal() { return std::normal_distribution<float>()(random_); }
  // What `usual` says, or with strong weights random numbers.
  void matrix(const std::string& name, int64_t cols, int64_t rows,
              const std::function<float(int64_t row, int64_t col)>& usual) {
    const float sigma = 1.5f / std::sqrt(static_cast<float>(cols));
    floats(name, {cols, rows}, [&](size_t i) {
      const auto at = static_cast<int64_t>(i);
      return options_.strong ? sigma * normal() : usual(at / cols, at % cols);
    });
  }
  void gains(const std::string& name, int64_t width) {
    floats(name, {width}, [&](size_t) { return options_.strong ? 1 + 0.3f * normal() : 1.0f; });
  }
  void copy(const input::GgufTensor& tensor, const std::string& name) {
    if (left_out(name)) return;
    writer_.add_tensor(name, tensor.dtype,
                       {tensor.shape.begin(), tensor.shape.begin() + tensor.n_dims},
                       std::vector<std::byte>(tensor.bytes.begin(), tensor.bytes.end()));
  }

  void add_attention(int64_t heads) {
    const int64_t q = heads * kHeadDim;
    const int64_t kv = options_.strong ? q / 2 : q;
    std::vector<float> same(static_cast<size_t>(q * 2 * width_));
    const float sigma = 3 / std::sqrt(static_cast<float>(2 * width_));
    for (float& value : same) value = sigma * normal();
    const auto of_same = [&](int64_t row, int64_t col) {
      return same[static_cast<size_t>(row * 2 * width_ + col)];
    };
    const auto unit = [](int64_t row, int64_t col) { return row == col ? 1.0f : 0.0f; };
    matrix("blk.0.attn_q.weight", 2 * width_, q, of_same);
    matrix("blk.0.attn_k.weight", 2 * width_, kv, of_same);
    matrix("blk.0.attn_v.weight", 2 * width_, kv, unit);
    matrix("blk.0.attn_output.weight", q, width_, unit);
  }

  void add_mlp() {
    const input::GgufTensor* gate = model_.find("blk.0.ffn_gate.weight");
    if (!options_.strong && gate != nullptr && width_ == model_width_) {
      for (const char* leaf : {"ffn_norm", "ffn_gate", "ffn_up", "ffn_down"}) {
        const std::string name = fmt::format("blk.0.{}.weight", leaf);
        if (const input::GgufTensor* tensor = model_.find(name)) copy(*tensor, name);
      }
      return u32("feed_forward_length", gate->shape[1]);
    }
    const int64_t inner = 96;
    const auto little = [&](int64_t, int64_t) { return 0.02f * normal(); };
    u32("feed_forward_length", inner);
    gains("blk.0.ffn_norm.weight", width_);
    matrix("blk.0.ffn_gate.weight", width_, inner, little);
    matrix("blk.0.ffn_up.weight", width_, inner, little);
    matrix("blk.0.ffn_down.weight", inner, width_, little);
  }

  // Rows of the model's own, where they are.
  void add_head(const input::GgufTensor& table) {
    if (options_.every == 0) return;
    std::vector<int64_t> tokens;
    for (int64_t token = 0; token < vocab_; ++token) {
      if (token % options_.every != options_.every - 1) tokens.push_back(token);
    }
    const input::GgufTensor* own = model_.find("output.weight");
    const input::GgufTensor& head = own != nullptr ? *own : table;
    std::vector<float> row(static_cast<size_t>(model_width_));
    const int64_t row_size = static_cast<int64_t>(head.size_bytes) / vocab_;
    int64_t at = -1;
    matrix("output.weight", width_, static_cast<int64_t>(tokens.size()),
           [&](int64_t logit, int64_t col) {
             if (logit != at) {
               at = logit;
               dequantize_row(head.dtype,
                              head.bytes.data() + tokens[static_cast<size_t>(logit)] * row_size,
                              model_width_, row.data());
             }
             return col < model_width_ ? row[static_cast<size_t>(col)] : 0.0f;
           });
    if (options_.edit_map) options_.edit_map(tokens);
    if (!left_out("d2t")) writer_.add_table("d2t", tokens);
  }

  const input::GgufFile& model_;
  const DraftHeadOptions& options_;
  std::mt19937_64 random_;
  input::GgufWriter writer_;
  int64_t vocab_ = 0, model_width_ = 0, width_ = 0;
};

inline Status write_draft_head(const input::GgufFile& model, const std::string& path,
                               const DraftHeadOptions& options = {}) {
  return DraftHeadWriter(model, options).write(path);
}

}  // namespace ktx::testing

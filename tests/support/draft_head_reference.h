// The logits of a draft head (EAGLE-3) from its formulas, in double, token by token, straight from
// the tensors of its file: the oracle of what the compiler and the runtime make of it.
//
//   DraftHeadReference head(head_gguf, model_gguf);
//   Logits first = head.next(token, states_of_the_model);   // of the token before
//   Logits further = head.further(draft token);                   // its own, in their place
//
// Knows nothing of module graphs and families. Not fast.
#pragma once

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "lib/formats/dtype.h"
#include "lib/input/gguf.h"

namespace ktx::testing {

class DraftHeadReference {
 public:
  using Vector = std::vector<double>;

  DraftHeadReference(const input::GgufFile& head, const input::GgufFile& model)
      : head_(head), model_(model) {
    const auto number = [&](const char* key) {
      return static_cast<size_t>(head.i64(std::string("eagle3.") + key).value_or(0));
    };
    width_ = number("embedding_length");
    heads_ = number("attention.head_count");
    kv_heads_ = number("attention.head_count_kv");
    head_dim_ = number("attention.key_length");
    eps_ = head.f64("eagle3.attention.layer_norm_rms_epsilon").value_or(0);
    base_ = head.f64("eagle3.rope.freq_base").value_or(0);
    norm_before_fc_ = head.boolean("eagle3.norm_before_fc").value_or(false);
    norm_before_residual_ = head.boolean("eagle3.norm_before_residual").value_or(false);
  }

  // `states`: those of the model, one behind the other.
  Vector next(int32_t token, const Vector& states) {
    return read(
        token,
        product("fc.weight", norm_before_fc_ ? normed("enc.output_norm.weight", states) : states));
  }
  // With what it gave for the token before.
  Vector further(int32_t token) { return read(token, stream_); }

 private:
  Vector read(int32_t token, const Vector& g) {
    const Vector& table = tensor("token_embd.weight");
    const auto row = table.begin() + static_cast<ptrdiff_t>(token * width_);
    const Vector embedding(row, row + static_cast<ptrdiff_t>(width_));
    Vector in = normed("blk.0.attn_norm.weight", embedding);
    const Vector g_normed = normed("blk.0.attn_norm_2.weight", g);
    in.insert(in.end(), g_normed.begin(), g_normed.end());
    Vector x = norm_before_residual_ ? g_normed : g;
    add(x, attention(in));
    const Vector inner = normed("blk.0.ffn_norm.weight", x);
    const Vector gate = product("blk.0.ffn_gate.weight", inner);
    Vector up = product("blk.0.ffn_up.weight", inner);
    for (size_t i = 0; i < up.size(); ++i) up[i] *= gate[i] / (1 + std::exp(-gate[i]));
    add(x, product("blk.0.ffn_down.weight", up));
    stream_ = x;
    const bool has_output = head_.has("output.weight") || model_.has("output.weight");
    return product(has_output ? "output.weight" : "token_embd.weight",
                   normed("output_norm.weight", x));
  }
  const Vector& tensor(const std::string& name) {
    Vector& values = tensors_[name];
    if (!values.empty()) return values;
    const input::GgufTensor* found = head_.has(name) ? head_.find(name) : model_.find(name);
    std::vector<float> floats(static_cast<size_t>(found->elems));
    dequantize_row(found->dtype, found->bytes.data(), found->elems, floats.data());
    values.assign(floats.begin(), floats.end());
    return values;
  }
  Vector product(const std::string& name, const Vector& x) {
    const Vector& w = tensor(name);
    Vector y(w.size() / x.size());
    for (size_t row = 0; row < y.size(); ++row) {
      for (size_t i = 0; i < x.size(); ++i) y[row] += w[row * x.size() + i] * x[i];
    }
    return y;
  }
  Vector normed(const std::string& name, const Vector& x) {
    double squares = 0;
    for (const double value : x) squares += value * value;
    const double factor = 1 / std::sqrt(squares / static_cast<double>(x.size()) + eps_);
    Vector y = tensor(name);
    for (size_t i = 0; i < x.size(); ++i) y[i] *= x[i] * factor;
    return y;
  }
  static void add(Vector& x, const Vector& y) {
    for (size_t i = 0; i < x.size(); ++i) x[i] += y[i];
  }
  // Pairs (2i, 2i+1) of each head, by the position in the head's own text.
  void rotate(Vector& x) {
    const bool scaled = head_.has("rope_freqs.weight");
    for (size_t head = 0; head < x.size() / head_dim_; ++head) {
      for (size_t i = 0; i < head_dim_ / 2; ++i) {
        const double share = 2.0 * static_cast<double>(i) / static_cast<double>(head_dim_);
        double angle = static_cast<double>(keys_.size()) * std::pow(base_, -share);
        if (scaled) angle /= tensor("rope_freqs.weight")[i];
        double& a = x[head * head_dim_ + 2 * i];
        double& b = x[head * head_dim_ + 2 * i + 1];
        const double first = a * std::cos(angle) - b * std::sin(angle);
        b = a * std::sin(angle) + b * std::cos(angle);
        a = first;
      }
    }
  }
  Vector attention(const Vector& in) {
    Vector q = product("blk.0.attn_q.weight", in), k = product("blk.0.attn_k.weight", in);
    rotate(q), rotate(k);
    keys_.push_back(k);
    values_.push_back(product("blk.0.attn_v.weight", in));
    Vector out(q.size());
    for (size_t head = 0; head < heads_; ++head) {
      const size_t at = head * head_dim_, from = head / (heads_ / kv_heads_) * head_dim_;
      Vector scores;
      double most = -INFINITY, sum = 0;
      for (const Vector& key : keys_) {
        double score = 0;
        for (size_t i = 0; i < head_dim_; ++i) score += q[at + i] * key[from + i];
        scores.push_back(score / std::sqrt(static_cast<double>(head_dim_)));
        most = std::max(most, scores.back());
      }
      for (double& score : scores) sum += score = std::exp(score - most);
      for (size_t p = 0; p < scores.size(); ++p) {
        for (size_t i = 0; i < head_dim_; ++i) {
          out[at + i] += scores[p] / sum * values_[p][from + i];
        }
      }
    }
    return product("blk.0.attn_output.weight", out);
  }

  const input::GgufFile& head_;
  const input::GgufFile& model_;
  size_t width_ = 0, heads_ = 0, kv_heads_ = 0, head_dim_ = 0;
  double eps_ = 0, base_ = 0;
  bool norm_before_fc_ = false, norm_before_residual_ = false;
  std::map<std::string, Vector> tensors_;
  std::vector<Vector> keys_, values_;
  Vector stream_;
};

}  // namespace ktx::testing

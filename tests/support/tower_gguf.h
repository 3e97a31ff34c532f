// A GGUF that reads images for a model (the projectors of Gemma 3, Mistral 3 and Qwen3-VL), as
// converters write it, with random weights by which every part shows in the rows.
//
//   KTX_TRY(write_tower(dir.path("mmproj.gguf"), {.width = 256}));
//
// The same options give the same bytes on every machine: make_image_rows.py computed what the tests
// compare with from such files.
#pragma once

#include <cmath>
#include <cstring>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "lib/formats/dtype.h"
#include "lib/input/gguf_writer.h"
#include "tests/support/prediction_gguf.h"

namespace ktx::testing {

struct TowerOptions {
  int64_t image = 36, patch = 6, pool = 2;  // pixels, pixels, patches
  int64_t hidden = 40, heads = 4, inner = 56, layers = 3;
  int64_t width = 256;  // of the rows
  uint64_t seed = 1;
  std::string projector = "gemma3";  // or "pixtral", "qwen3vl_merger"
  bool old_names = false;            // of Gemma's feed-forward part, the other way round
  bool biased = false;               // linears of Pixtral's projector
  // For Qwen3-VL: layers that give a part of the rows, and how many pixels an image may have.
  std::vector<int64_t> part_layers = {};
  int64_t least_pixels = 0, most_pixels = 0;  // 0: the file does not say
  // Changes to keys and tensors.
  std::function<bool(const std::string& name)> leaves_out = nullptr;
  std::function<void(const std::string& name, std::vector<int64_t>& shape)> edit_shape = nullptr;
  std::function<int64_t(const std::string& name, int64_t number)> edit_number = nullptr;
};

class TowerWriter {
 public:
  explicit TowerWriter(TowerOptions options) : o_(std::move(options)), state_(o_.seed) {}

  Status write(const std::string& path) {
    writer_.add_string("general.architecture", "clip");
    writer_.add_string("general.type", "mmproj");
    writer_.add_string("clip.projector_type", o_.projector);
    writer_.add_bool("clip.has_vision_encoder", true);
    u32("projection_dim", o_.width);
    u32("image_size", o_.image);
    u32("patch_size", o_.patch);
    u32("embedding_length", o_.hidden);
    u32("feed_forward_length", o_.inner);
    u32("block_count", o_.layers);
    u32("attention.head_count", o_.heads);
    if (!left_out("image_mean")) {
      writer_.add_f32s("clip.vision.image_mean", std::vector<float>{0.5f, 0.45f, 0.4f});
    }
    writer_.add_f32s("clip.vision.image_std", std::vector<float>{0.5f, 0.25f, 0.3f});
    if (o_.projector == "qwen3vl_merger") {
      add_qwen3();
    } else {
      o_.projector == "pixtral" ? add_pixtral() : add_gemma();
    }
    return writer_.write(path);
  }

 private:
  void add_gemma() {
    writer_.add_bool("clip.use_gelu", true);
    u32("projector.scale_factor", o_.pool);
    writer_.add_f32("clip.vision.attention.layer_norm_epsilon", 1e-6f);
    const int64_t columns = o_.image / o_.patch;
    add_patches();
    vector("v.patch_embd.bias", o_.hidden, 0, 0.3);
    matrix("v.position_embd.weight", {o_.hidden, columns * columns}, 1);
    for (int64_t layer = 0; layer < o_.layers; ++layer) add_layer(fmt::format("v.blk.{}.", layer));
    norm("v.post_ln.");
    vector("mm.soft_emb_norm.weight", o_.hidden, 1, 0.3);
    matrix("mm.input_projection.weight", {o_.width, o_.hidden}, o_.hidden);
  }
  void add_pixtral() {
    writer_.add_bool("clip.use_silu", true);
    u32("spatial_merge_size", o_.pool);
    writer_.add_f32("clip.vision.attention.layer_norm_epsilon", 1e-5f);
    add_patches();
    vector("v.token_embd.img_break", o_.width, 0, 0.3);
    vector("v.pre_ln.weight", o_.hidden, 1, 0.5);
    for (int64_t i = 0; i < o_.layers; ++i) {
      const std::string layer = fmt::format("v.blk.{}.", i);
      vector(layer + "ln1.weight", o_.hidden, 1, 0.5);
      for (const char* part : {"attn_q.", "attn_k.", "attn_v.", "attn_out."}) {
        matrix(layer + part + "weight", {o_.hidden, o_.hidden}, o_.hidden);
      }
      vector(layer + "ln2.weight", o_.hidden, 1, 0.5);
      matrix(layer + "ffn_gate.weight", {o_.hidden, o_.inner}, o_.hidden);
      matrix(layer + "ffn_up.weight", {o_.hidden, o_.inner}, o_.hidden);
      matrix(layer + "ffn_down.weight", {o_.inner, o_.hidden}, o_.inner);
    }
    vector("mm.input_norm.weight", o_.hidden, 1, 0.5);
    const int64_t square = o_.hidden * o_.pool * o_.pool;
    matrix("mm.patch_merger.weight", {square, o_.hidden}, square);
    for (const auto& [name, in] : {std::pair{"mm.1.", o_.hidden}, {"mm.2.", o_.width}}) {
      matrix(std::string(name) + "weight", {in, o_.width}, in);
      if (o_.biased) vector(std::string(name) + "bias", o_.width, 0, 0.3);
    }
  }
  void add_qwen3() {
    writer_.add_bool("clip.use_gelu", true);
    u32("spatial_merge_size", o_.pool);
    if (o_.least_pixels > 0) u32("image_min_pixels", o_.least_pixels);
    if (o_.most_pixels > 0) u32("image_max_pixels", o_.most_pixels);
    writer_.add_f32("clip.vision.attention.layer_norm_epsilon", 1e-6f);
    std::vector<bool> gives(static_cast<size_t>(o_.layers));
    for (const int64_t layer : o_.part_layers) gives.at(static_cast<size_t>(layer)) = true;
    writer_.add_bools("clip.vision.is_deepstack_layers", gives);
    const int64_t columns = o_.image / o_.patch, square = o_.hidden * o_.pool * o_.pool;
    add_patches();
    matrix("v.patch_embd.weight.1", {o_.patch, o_.patch, 3, o_.hidden}, 3 * o_.patch * o_.patch);
    vector("v.patch_embd.bias", o_.hidden, 0, 0.3);
    matrix("v.position_embd.weight", {o_.hidden, columns * columns}, 1);
    for (int64_t i = 0; i < o_.layers; ++i) {
      const std::string layer = fmt::format("v.blk.{}.", i);
      norm(layer + "ln1.");
      linear(layer + "attn_qkv.", o_.hidden, 3 * o_.hidden);
      linear(layer + "attn_out.", o_.hidden, o_.hidden);
      norm(layer + "ln2.");
      linear(layer + "ffn_up.", o_.hidden, o_.inner);
      linear(layer + "ffn_down.", o_.inner, o_.hidden);
      if (!gives[static_cast<size_t>(i)]) continue;
      const std::string part = fmt::format("v.deepstack.{}.", i);
      vector(part + "norm.weight", square, 1, 0.5);
      vector(part + "norm.bias", square, 0, 0.3);
      linear(part + "fc1.", square, square);
      linear(part + "fc2.", square, o_.width);
    }
    norm("v.post_ln.");
    linear("mm.0.", square, square);
    linear("mm.2.", square, o_.width);
  }
  void add_patches() {
    matrix("v.patch_embd.weight", {o_.patch, o_.patch, 3, o_.hidden}, 3 * o_.patch * o_.patch);
  }
  void add_layer(const std::string& layer) {
    norm(layer + "ln1.");
    for (const char* part : {"attn_q.", "attn_k.", "attn_v.", "attn_out."}) {
      linear(layer + part, o_.hidden, o_.hidden);
    }
    norm(layer + "ln2.");
    linear(layer + (o_.old_names ? "ffn_down." : "ffn_up."), o_.hidden, o_.inner);
    linear(layer + (o_.old_names ? "ffn_up." : "ffn_down."), o_.inner, o_.hidden);
  }
  bool left_out(const std::string& name) const { return o_.leaves_out && o_.leaves_out(name); }
  void u32(const std::string& key, int64_t number) {
    if (left_out(key)) return;
    if (o_.edit_number) number = o_.edit_number(key, number);
    writer_.add_u32("clip.vision." + key, static_cast<uint32_t>(number));
  }
  // -1 to 1, by splitmix64: no libm, no distribution of a library.
  double next() {
    state_ += 0x9E3779B97F4A7C15u;
    uint64_t x = state_;
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
    x ^= x >> 31;
    return static_cast<double>(x >> 11) / static_cast<double>(uint64_t{1} << 52) - 1;
  }
  void tensor(const std::string& name, std::vector<int64_t> shape, double middle, double reach) {
    if (left_out(name)) return;
    if (o_.edit_shape) o_.edit_shape(name, shape);
    size_t count = 1;
    for (const int64_t dim : shape) count *= static_cast<size_t>(dim);
    std::vector<float> all(count);
    for (float& value : all) value = static_cast<float>(middle + reach * next());
    writer_.add_tensor(name, DType::F32, std::move(shape), float_bytes(all));
  }
  void matrix(const std::string& name, std::vector<int64_t> shape, int64_t terms) {
    tensor(name, std::move(shape), 0, 2 / std::sqrt(static_cast<double>(terms)));
  }
  void vector(const std::string& name, int64_t size, double middle, double reach) {
    tensor(name, {size}, middle, reach);
  }
  void norm(const std::string& name) {
    vector(name + "weight", o_.hidden, 1, 0.5);
    vector(name + "bias", o_.hidden, 0, 0.3);
  }
  void linear(const std::string& name, int64_t in, int64_t out) {
    matrix(name + "weight", {in, out}, in);
    vector(name + "bias", out, 0, 0.3);
  }

  const TowerOptions o_;
  uint64_t state_;
  input::GgufWriter writer_;
};

inline Status write_tower(const std::string& path, const TowerOptions& options = {}) {
  return TowerWriter(options).write(path);
}

}  // namespace ktx::testing

#include "lib/arch/tensor_binder.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <charconv>
#include <cmath>

#include "lib/formats/shape_text.h"
#include "lib/support/strings.h"

namespace ktx::arch {
namespace {

// A config of another model would give thousands.
constexpr int kMaxFailures = 20;
constexpr size_t kMaxListed = 10;

// "blk.12.ffn_up.weight" -> "12"
std::string digits(std::string_view name) {
  std::string out;
  for (char c : name) {
    if (c >= '0' && c <= '9') out += c;
  }
  return out;
}

std::string print_shape(const ParamShape& shape) {
  return shape_text(shape.cols, shape.rows, shape.matrices);
}

std::string print_shape(const input::GgufTensor& tensor) {
  return fmt::format("[{}]",
                     fmt::join(tensor.shape.begin(), tensor.shape.begin() + tensor.n_dims, ", "));
}

std::vector<std::string> alternatives(std::string_view tensors) {
  std::vector<std::string> out;
  for (std::string_view one : split(tensors, '|')) out.emplace_back(trim(one));
  return out;
}

std::string replace_expert(std::string_view pattern, int64_t expert) {
  constexpr std::string_view kMark = "{expert}";
  const size_t at = pattern.find(kMark);
  if (at == std::string_view::npos) return std::string(pattern);
  return fmt::format("{}{}{}", pattern.substr(0, at), expert, pattern.substr(at + kMark.size()));
}

// The layer of "blk.7.x", -1 for other names.
int64_t layer_of(std::string_view tensor) {
  if (!tensor.starts_with("blk.")) return -1;
  tensor.remove_prefix(4);
  int64_t layer = -1;
  const auto result = std::from_chars(tensor.data(), tensor.data() + tensor.size(), layer);
  if (result.ec != std::errc() || result.ptr == tensor.data() + tensor.size() ||
      *result.ptr != '.' || layer < 0) {
    return -1;
  }
  return layer;
}

// Why a tensor may belong to no module; "" when nothing is known about it.
std::string_view known_reason(std::string_view tensor, int32_t layers, bool longrope) {
  if (tensor == "rope_freqs.weight") return "rotary factors, worked into inv_freq";
  if (longrope && (tensor == "rope_factors_long.weight" || tensor == "rope_factors_short.weight")) {
    return "rotary factors of one range of contexts, worked into inv_freq where the plan's is that";
  }
  if (tensor.ends_with(".attn_rot_embd") || tensor.ends_with(".attn_rot_embd.weight") ||
      tensor.ends_with(".rope_freqs.weight")) {
    return "rotary frequencies, computed instead";
  }
  if (tensor == "v.token_embd.img_break") return "a row of the language model's own embedding";
  if (layer_of(tensor) >= layers) return "multi-token prediction head";
  if (tensor.ends_with(".attn_k_b.weight") || tensor.ends_with(".attn_v_b.weight")) {
    return "the same weights as attn_kv_b";
  }
  return "";
}

}  // namespace

void TensorBinder::fail(std::string what, std::string code) {
  if (++failures_ > kMaxFailures) return;
  if (failures_ == kMaxFailures) what += " (more tensors do not fit; the rest is not listed)";
  diags_.error({.file = gguf_->path()}, std::move(code), std::move(what));
}

bool TensorBinder::check_shape(const input::GgufTensor& tensor, const ParamShape& shape,
                               std::string_view purpose) {
  const auto& ne = tensor.shape;
  const bool exact =
      ne[0] == shape.cols && ne[1] == shape.rows && ne[2] == shape.matrices && ne[3] == 1;
  // Old files store a head's matrices below each other.
  const bool stacked = ne[0] == shape.cols && ne[2] == 1 && ne[3] == 1 &&
                       ne[1] / shape.matrices == shape.rows && ne[1] % shape.matrices == 0;
  // Convolutions, and vectors that stand upright.
  const bool apart =
      ne[0] == shape.cols && ne[1] == 1 && ne[2] == shape.rows && shape.matrices == 1 && ne[3] == 1;
  const bool upright = ne[0] == 1 && ne[1] == shape.cols && shape.rows == 1 &&
                       shape.matrices == 1 && ne[2] == 1 && ne[3] == 1;
  // Norms side by side.
  const bool flat = ne[0] == shape.cols * shape.rows && ne[1] == 1 && ne[2] == 1 && ne[3] == 1 &&
                    shape.matrices == 1 && tensor.dtype == DType::F32;
  // A convolution over patches: of each output all channels, row by row.
  const bool patches = ne[0] * ne[1] * ne[2] == shape.cols && ne[3] == shape.rows && ne[3] > 1 &&
                       shape.matrices == 1;
  if (exact || stacked || apart || upright || flat || patches) return true;
  fail(fmt::format("tensor '{}' ({}) is {}, the config says {}", printable(tensor.name), purpose,
                   print_shape(tensor), print_shape(shape)));
  return false;
}

const input::GgufTensor* TensorBinder::find(const std::string& tensor, std::string_view purpose,
                                            const ParamShape& shape, bool integers) {
  const input::GgufTensor* found = gguf_->find(tensor);
  if (found == nullptr) {
    std::string meant;
    if (failures_ < 3) {  // many names to compare with
      std::vector<std::string> names;
      for (const input::GgufTensor& other : gguf_->tensors()) {
        // The same part of another layer is no misspelling.
        if (digits(other.name) == digits(tensor)) names.push_back(printable(other.name));
      }
      meant = did_you_mean(tensor, names);
    }
    fail(fmt::format("tensor '{}' ({}, {}) is missing{}", tensor, purpose, print_shape(shape),
                     meant),
         "T003");
    return nullptr;
  }
  use(tensor);
  if ((found->dtype == DType::I32) != integers) {
    fail(fmt::format("tensor '{}' ({}) has type {}, expected {}", tensor, purpose,
                     name(found->dtype), integers ? "I32" : "a weight format"));
    return nullptr;
  }
  return found;
}

ir::Param TensorBinder::bind(std::string_view param, std::string_view tensors,
                             const ParamShape& shape, int32_t layer, std::string_view purpose) {
  const std::vector<std::string> names = alternatives(tensors);
  const std::string* chosen = &names.front();
  if (gguf_ != nullptr) {
    for (const std::string& name : names) {
      if (gguf_->has(replace_expert(name, 0))) {
        chosen = &name;
        break;
      }
    }
    if (chosen->find("{expert}") != std::string::npos) {
      return bind_each_expert(param, *chosen, shape, purpose);
    }
  }
  ir::Param out{std::string(param), {{*chosen}}, DType::F32,
                shape.rows,         shape.cols,  shape.matrices};
  if (gguf_ == nullptr) {
    if (model_.tied && *chosen == "output.weight") chosen = &names.back();
    out.sources = {{*chosen}};
    out.dtype = usual_dtype(*chosen, shape.cols, shape.rows, layer, model_);
  } else if (const input::GgufTensor* tensor = find(*chosen, purpose, shape, param == "table")) {
    check_shape(*tensor, shape, purpose);
    out.dtype = tensor->dtype;
  }
  return out;
}

ir::Param TensorBinder::bind_each_expert(std::string_view param, const std::string& pattern,
                                         const ParamShape& shape, std::string_view purpose) {
  ir::Param out{std::string(param), {}, DType::F32, shape.rows, shape.cols, shape.matrices};
  const ParamShape one{shape.cols, shape.rows, 1};
  for (int64_t expert = 0; expert < shape.matrices; ++expert) {
    const std::string name = replace_expert(pattern, expert);
    const input::GgufTensor* tensor = find(name, purpose, one);
    if (tensor == nullptr || !check_shape(*tensor, one, purpose)) break;
    if (expert == 0) out.dtype = tensor->dtype;
    if (tensor->dtype != out.dtype) {
      fail(
          fmt::format("tensor '{}' is {}, expert 0 of the same layer is {}; quantise the model "
                      "again with one type per layer",
                      name, ktx::name(tensor->dtype), ktx::name(out.dtype)));
      return out;
    }
    out.sources.push_back({name});
  }
  return out;
}

ir::Param TensorBinder::bind_rows(std::string_view param, const std::string& tensor,
                                  const ParamShape& shape, int64_t first, int64_t all_rows,
                                  std::string_view purpose) {
  ir::Param out{std::string(param), {}, DType::F32, shape.rows, shape.cols, shape.matrices};
  // A vector's parts are counted in units of the part.
  const bool vector = shape.rows == 1;
  const ParamShape whole =
      vector ? ParamShape{all_rows, 1, 1} : ParamShape{shape.cols, all_rows, 1};
  if (const input::GgufTensor* found = find(tensor, purpose, whole)) {
    check_shape(*found, whole, purpose);
    out.dtype = found->dtype;
    if (vector && first % shape.cols != 0) {
      fail(
          fmt::format("tensor '{}' joins biases of unequal widths, which is not known; convert the "
                      "model with separate ones",
                      tensor));
    }
  }
  out.sources.push_back({tensor, vector ? first / shape.cols : first, shape.rows});
  return out;
}

ir::Param TensorBinder::bind_half(std::string_view param, const std::string& tensor,
                                  const ParamShape& shape, bool second, std::string_view purpose) {
  ir::Param out{std::string(param), {}, DType::F32, shape.rows, shape.cols, shape.matrices};
  const ParamShape whole{shape.cols, 2 * shape.rows, shape.matrices};
  const input::GgufTensor* found = find(tensor, purpose, whole);
  if (found == nullptr || !check_shape(*found, whole, purpose)) {
    out.sources.push_back({tensor});
    return out;
  }
  out.dtype = found->dtype;
  for (int64_t expert = 0; expert < shape.matrices; ++expert) {
    out.sources.push_back({tensor, (2 * expert + second) * shape.rows, shape.rows});
  }
  return out;
}

float TensorBinder::bind_factor(const std::string& weights) {
  if (gguf_ == nullptr || !weights.ends_with(".weight")) return 1;
  return bind_number(weights.substr(0, weights.rfind('.')) + ".scale",
                     fmt::format("factor of '{}'", printable(weights)));
}

float TensorBinder::bind_number(const std::string& name, std::string_view purpose) {
  const input::GgufTensor* tensor = gguf_ == nullptr ? nullptr : gguf_->find(name);
  if (tensor == nullptr) return 1;
  factors_.insert(name);
  if (tensor->dtype != DType::F32 || tensor->elems != 1) {
    fail(fmt::format("tensor '{}' ({}) is {} {}, expected one F32", printable(name), purpose,
                     ktx::name(tensor->dtype), print_shape(*tensor)));
    return 1;
  }
  if (!gguf_->has_data()) return 1;
  float number = 1;
  dequantize_row(DType::F32, tensor->bytes.data(), 1, &number);
  if (!std::isfinite(number) || number <= 0) {
    fail(fmt::format("tensor '{}' holds {}, expected a positive number", printable(name), number));
    return 1;
  }
  return number;
}

std::vector<ir::ModuleGraph::ExtraTensor> TensorBinder::leftovers(int32_t layers, bool longrope) {
  std::vector<ir::ModuleGraph::ExtraTensor> known;
  if (gguf_ == nullptr) return known;
  std::vector<std::string> unknown;
  for (const input::GgufTensor& tensor : gguf_->tensors()) {
    const std::string name(tensor.name);
    if (used_.contains(name)) continue;
    const auto left_out = left_out_.find(name);
    const std::string_view reason =
        left_out != left_out_.end() ? left_out->second : known_reason(name, layers, longrope);
    const std::string weight = name.substr(0, name.rfind('.')) + ".weight";
    if (!reason.empty()) {
      known.push_back({name, std::string(reason)});
    } else if (name.ends_with(".input_scale") && used_.contains(weight)) {
      known.push_back({name, "a factor for activations in FP4, which ktx does not use"});
    } else if (factors_.contains(name)) {
      known.push_back({name, name.ends_with(".scale") ? "a factor, applied behind the product"
                                                      : "a factor, applied behind the layer"});
    } else if (name.ends_with(".scale") && used_.contains(weight)) {
      fail(
          fmt::format("tensor '{}' holds factors of '{}', which ktx does not apply; use a file "
                      "whose NVFP4 weights have none there, or another format",
                      printable(name), printable(weight)));
    } else if (name.find("rope_factors_") != std::string::npos) {
      fail(
          fmt::format("tensor '{}' holds rotary factors of longrope, but the config has another "
                      "rope scaling; the model would be wrong without them",
                      printable(name)));
    } else if (name.ends_with(".bias") && used_.contains(weight)) {
      fail(fmt::format("tensor '{}' is a bias, but the config says that '{}' has none",
                       printable(name), printable(weight)));
    } else {
      unknown.push_back(fmt::format("'{}'", printable(name)));
    }
  }
  if (!unknown.empty()) {
    const size_t more = unknown.size() - std::min(unknown.size(), kMaxListed);
    const size_t total = unknown.size();
    unknown.resize(total - more);
    diags_.warning(
        {.file = gguf_->path()}, "T005",
        fmt::format("{} tensor{} no module uses: {}{}", total, total == 1 ? " that" : "s that",
                    fmt::join(unknown, ", "), more == 0 ? "" : fmt::format(" and {} more", more)));
  }
  return known;
}

}  // namespace ktx::arch

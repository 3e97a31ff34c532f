// Random adapters for a model, and the model with adapters merged into its weights: what low-rank
// terms at run time are compared with.
#pragma once

#include <algorithm>
#include <array>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lib/formats/dtype.h"
#include "lib/input/gguf.h"
#include "lib/input/gguf_writer.h"
#include "lib/runtime/sampling/random.h"

namespace ktx::testing {

struct LoraSpec {
  int64_t rank = 4;
  float alpha = 8;
  uint64_t seed = 1;
  DType dtype = DType::F32;  // or BF16
  // Parts of names of the tensors that it changes.
  std::vector<std::string> tensors = {".attn_q.",   ".attn_k.", ".attn_v.",   ".attn_output.",
                                      ".attn_qkv.", ".ffn_up.", ".ffn_gate.", ".ffn_down."};
};

inline std::vector<std::byte> random_matrix(int64_t rows, int64_t cols, DType dtype, float size,
                                            runtime::Random& random) {
  std::vector<std::byte> bytes;
  for (int64_t i = 0; i < rows * cols; ++i) {
    const float value = size * (static_cast<float>(random.next() % 2001) / 1000.f - 1.f);
    const auto* const raw = reinterpret_cast<const std::byte*>(&value);
    bytes.insert(bytes.end(), raw + (dtype == DType::BF16 ? 2 : 0), raw + 4);
  }
  return bytes;
}

inline Status write_lora(const input::GgufFile& model, const LoraSpec& spec,
                         const std::string& path) {
  input::GgufWriter writer;
  writer.add_string("general.architecture", model.architecture());
  writer.add_string("general.type", "adapter");
  writer.add_string("adapter.type", "lora");
  writer.add_f32("adapter.lora.alpha", spec.alpha);
  runtime::Random random(spec.seed);
  for (const input::GgufTensor& tensor : model.tensors()) {
    const auto named = [&](const std::string& part) {
      return tensor.name.find(part) != tensor.name.npos;
    };
    if (tensor.n_dims < 2 || !tensor.name.ends_with(".weight") ||
        std::ranges::none_of(spec.tensors, named)) {
      continue;
    }
    const int64_t cols = tensor.shape[0], rows = tensor.shape[1], experts = tensor.shape[2];
    const std::string name(tensor.name);
    std::vector<int64_t> a = {cols, spec.rank}, b = {spec.rank, rows};
    if (tensor.n_dims == 3) a.push_back(experts), b.push_back(experts);
    writer.add_tensor(name + ".lora_a", spec.dtype, a,
                      random_matrix(experts * spec.rank, cols, spec.dtype, 0.1f, random));
    writer.add_tensor(name + ".lora_b", spec.dtype, b,
                      random_matrix(experts * rows, spec.rank, spec.dtype, 0.1f, random));
  }
  return writer.write(path);
}

struct MergedLora {
  std::string path;
  double scale = 1;
};

// A model in F32 whose weights are W + scale * alpha / rank * B A, summed in F64.
inline Status write_merged(const input::GgufFile& model, const std::vector<MergedLora>& loras,
                           const std::string& path) {
  std::vector<std::pair<input::GgufFile, double>> adapters;
  for (const MergedLora& lora : loras) {
    adapters.emplace_back(KTX_TRY(input::GgufFile::open(lora.path)), lora.scale);
  }
  const auto floats = [](const input::GgufTensor& tensor) {
    std::vector<float> out(static_cast<size_t>(tensor.elems));
    dequantize_row(tensor.dtype, tensor.bytes.data(), tensor.elems, out.data());
    return out;
  };
  input::GgufWriter writer;
  for (const input::GgufValue& value : model.metadata()) writer.copy(value);
  for (const input::GgufTensor& tensor : model.tensors()) {
    std::vector<double> sums;
    for (const auto& [adapter, scale] : adapters) {
      const auto* const a = adapter.find(std::string(tensor.name) + ".lora_a");
      const auto* const b = adapter.find(std::string(tensor.name) + ".lora_b");
      if (a == nullptr || b == nullptr) continue;
      if (sums.empty()) {
        const std::vector<float> own = floats(tensor);
        sums.assign(own.begin(), own.end());
      }
      const std::vector<float> down = floats(*a), up = floats(*b);
      const int64_t cols = tensor.shape[0], rows = tensor.shape[1], rank = a->shape[1];
      const double alpha = *adapter.f32("adapter.lora.alpha");
      const double factor = alpha == 0 ? scale : scale * alpha / static_cast<double>(rank);
      for (int64_t n = 0; n < rows * tensor.shape[2]; ++n) {
        for (int64_t r = 0; r < rank; ++r) {
          const double left = factor * up[static_cast<size_t>(n * rank + r)];
          for (int64_t k = 0; k < cols; ++k) {
            sums[static_cast<size_t>(n * cols + k)] +=
                left * down[static_cast<size_t>((n / rows * rank + r) * cols + k)];
          }
        }
      }
    }
    if (sums.empty()) {
      writer.copy(tensor);
      continue;
    }
    std::vector<std::byte> bytes;
    for (const double sum : sums) {
      const auto value = static_cast<float>(sum);
      const auto* const raw = reinterpret_cast<const std::byte*>(&value);
      bytes.insert(bytes.end(), raw, raw + 4);
    }
    const auto shape = std::span(tensor.shape).first(static_cast<size_t>(tensor.n_dims));
    writer.add_tensor(std::string(tensor.name), DType::F32, {shape.begin(), shape.end()},
                      std::move(bytes));
  }
  return writer.write(path);
}

}  // namespace ktx::testing

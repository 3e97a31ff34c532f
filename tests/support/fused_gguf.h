// A GGUF with queries, keys and values of a layer as one tensor (attn_qkv), and gate and up of its
// experts as one (ffn_gate_up_exps), as some converters write them.
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "lib/input/gguf.h"
#include "lib/input/gguf_writer.h"

namespace ktx::testing {

struct FusedParts {
  std::vector<const input::GgufTensor*> parts;  // none: the tensor stays as it is
  std::string name;
};

// What `tensor` is written together with. Parts whose weights differ in type stay apart, and so do
// biases of experts.
inline FusedParts fused_parts(const input::GgufFile& gguf, const input::GgufTensor& tensor) {
  struct Row {
    std::vector<std::string> parts;
    std::string fused;
  };
  static const std::array<Row, 2> kRows = {
      Row{{".attn_q.", ".attn_k.", ".attn_v."}, ".attn_qkv."},
      Row{{".ffn_gate_exps.", ".ffn_up_exps."}, ".ffn_gate_up_exps."}};
  const std::string name(tensor.name);
  for (const Row& row : kRows) {
    for (const std::string& own : row.parts) {
      const size_t at = name.find(own);
      if (at == name.npos || name.ends_with("_exps.bias")) continue;
      const std::string layer = name.substr(0, at), leaf = name.substr(at + own.size());
      FusedParts out{{}, layer + row.fused + leaf};
      const input::GgufTensor* first = gguf.find(layer + row.parts[0] + "weight");
      for (const std::string& part : row.parts) {
        const input::GgufTensor* weight = gguf.find(layer + part + "weight");
        if (first == nullptr || weight == nullptr || weight->dtype != first->dtype) return {};
        out.parts.push_back(gguf.find(layer + part + leaf));
      }
      return out;
    }
  }
  return {};
}

inline Status fuse_tensors(const input::GgufFile& gguf, const std::string& path) {
  input::GgufWriter writer;
  for (const input::GgufValue& value : gguf.metadata()) writer.copy(value);
  for (const input::GgufTensor& tensor : gguf.tensors()) {
    const FusedParts fused = fused_parts(gguf, tensor);
    if (fused.parts.empty()) {
      writer.copy(tensor);
      continue;
    }
    if (fused.parts[0] != &tensor) continue;
    std::vector<int64_t> shape(tensor.shape.begin(), tensor.shape.begin() + tensor.n_dims);
    const size_t matrices = tensor.n_dims == 3 ? static_cast<size_t>(shape[2]) : 1;
    const size_t rows = tensor.n_dims == 1 ? 0 : 1;
    shape[rows] = 0;
    std::vector<std::byte> bytes;
    for (size_t matrix = 0; matrix < matrices; ++matrix) {
      for (const input::GgufTensor* part : fused.parts) {
        const size_t size = part->bytes.size() / matrices;
        const auto one = part->bytes.subspan(matrix * size, size);
        bytes.insert(bytes.end(), one.begin(), one.end());
      }
    }
    for (const input::GgufTensor* part : fused.parts) shape[rows] += part->shape[rows];
    writer.add_tensor(fused.name, tensor.dtype, shape, std::move(bytes));
  }
  return writer.write(path);
}

}  // namespace ktx::testing

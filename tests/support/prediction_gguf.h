// A GGUF with a layer for multi-token prediction behind a model's own: a copy of its first layer
// with attention over all positions, which reads the embedding of a token, and a little of the
// model's hidden state.
//
//   KTX_TRY(add_prediction_layer(gguf, dir.path("mtp.gguf")));
//
// It was not trained. What it says is often what the model says, and often not.
#pragma once

#include <cstring>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "lib/input/gguf.h"
#include "lib/input/gguf_writer.h"

namespace ktx::testing {

inline std::vector<std::byte> float_bytes(const std::vector<float>& values) {
  std::vector<std::byte> bytes(values.size() * sizeof(float));
  std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

// `own_head`: with an embedding and a head of its own, which are copies too.
inline Status add_prediction_layer(const input::GgufFile& gguf, const std::string& path,
                                   bool own_head = false) {
  const std::string arch(gguf.architecture());
  const auto count = gguf.value(arch + ".block_count");
  const int64_t layers = count == nullptr ? 0 : count->i64().value_or(0);
  if (layers < 1) return Error{"no layers"};
  input::GgufWriter writer;
  const std::string counts[] = {arch + ".block_count", arch + ".nextn_predict_layers"};
  for (const input::GgufValue& value : gguf.metadata()) {
    if (value.key != counts[0] && value.key != counts[1]) writer.copy(value);
  }
  writer.add_u32(counts[0], static_cast<uint32_t>(layers + 1));
  writer.add_u32(counts[1], 1);
  for (const input::GgufTensor& tensor : gguf.tensors()) writer.copy(tensor);
  const auto copy = [&](const input::GgufTensor& tensor, const std::string& name) {
    writer.add_tensor(name, tensor.dtype,
                      {tensor.shape.begin(), tensor.shape.begin() + tensor.n_dims},
                      std::vector<std::byte>(tensor.bytes.begin(), tensor.bytes.end()));
  };
  const auto has_attention = [&](int64_t layer) {
    return gguf.has(fmt::format("blk.{}.attn_output.weight", layer));
  };
  int64_t first = 0;
  while (first < layers && !has_attention(first)) ++first;
  const std::string from = fmt::format("blk.{}.", first), own = fmt::format("blk.{}.", layers);
  for (const input::GgufTensor& tensor : gguf.tensors()) {
    const std::string name(tensor.name);
    if (name.starts_with(from)) copy(tensor, own + name.substr(from.size()));
  }
  const input::GgufTensor* table = gguf.find("token_embd.weight");
  const input::GgufTensor* head = gguf.find("output.weight");
  const input::GgufTensor* norm = gguf.find("output_norm.weight");
  if (table == nullptr || norm == nullptr) return Error{"no embedding or no final norm"};
  const auto hidden = static_cast<size_t>(table->shape[0]);
  std::vector<float> both(2 * hidden * hidden, 0.0f);
  for (size_t i = 0; i < hidden; ++i) {
    both[i * 2 * hidden + i] = 1;
    both[i * 2 * hidden + hidden + i] = 0.1f;
  }
  const auto width = static_cast<int64_t>(hidden);
  writer.add_tensor(own + "nextn.eh_proj.weight", DType::F32, {2 * width, width},
                    float_bytes(both));
  for (const char* leaf : {"nextn.enorm.weight", "nextn.hnorm.weight"}) {
    writer.add_tensor(own + leaf, DType::F32, {width},
                      float_bytes(std::vector<float>(hidden, 1.0f)));
  }
  if (own_head) {
    copy(*table, own + "nextn.embed_tokens.weight");
    copy(head != nullptr ? *head : *table, own + "nextn.shared_head_head.weight");
    copy(*norm, own + "nextn.shared_head_norm.weight");
  }
  return writer.write(path);
}

}  // namespace ktx::testing

// Turns a GGUF of the deepseek2 architecture with split attn_k_b / attn_v_b into
// the older form with one attn_kv_b in F16, metadata and all.
//
//   ASSERT_TRUE(unsplit_kv_b(gguf, dir.path("unsplit.gguf")).ok());
//
// In the split form attn_k_b is [nope, kv_rank, heads] (transposed, per head) and
// attn_v_b [kv_rank, v, heads]; attn_kv_b is [kv_rank, heads * (nope + v)], the
// rows of a head: first its nope rows of k, then its v rows.
#pragma once

#include <fmt/format.h>

#include <cstring>
#include <string>
#include <vector>

#include "lib/formats/dtype.h"
#include "lib/input/gguf.h"
#include "lib/input/gguf_writer.h"
#include "lib/support/result.h"

namespace ktx::testing {

inline std::vector<float> dequantized(const input::GgufTensor& tensor) {
  std::vector<float> values(static_cast<size_t>(tensor.elems));
  dequantize_row(tensor.dtype, tensor.bytes.data(), tensor.elems, values.data());
  return values;
}

inline Status unsplit_kv_b(const input::GgufFile& gguf, const std::string& out_path) {
  const input::GgufTensor* k_b = gguf.find("blk.0.attn_k_b.weight");
  const input::GgufTensor* v_b = gguf.find("blk.0.attn_v_b.weight");
  if (!k_b || !v_b) return Error{fmt::format("{}: has no attn_k_b and attn_v_b", gguf.path())};
  const auto nope = k_b->shape[0], rank = k_b->shape[1], heads = k_b->shape[2];
  const auto v_dim = v_b->shape[1];
  const auto key_length = gguf.u64("deepseek2.attention.key_length_mla");
  if (!key_length) return Error{fmt::format("{}: has no key_length_mla", gguf.path())};

  input::GgufWriter writer;
  for (const input::GgufValue& value : gguf.metadata()) {
    const auto u32 = [&](int64_t number) {
      writer.add_u32(std::string(value.key), static_cast<uint32_t>(number));
    };
    if (value.key.ends_with("_mla")) continue;
    if (value.key == "deepseek2.attention.head_count_kv") {
      u32(heads);
    } else if (value.key == "deepseek2.attention.key_length") {
      u32(static_cast<int64_t>(*key_length));
    } else if (value.key == "deepseek2.attention.value_length") {
      u32(v_dim);
    } else {
      writer.copy(value);
    }
  }
  for (const input::GgufTensor& tensor : gguf.tensors()) {
    const size_t at = tensor.name.find(".attn_k_b.weight");
    if (tensor.name.find(".attn_v_b.weight") != tensor.name.npos) continue;
    if (at == tensor.name.npos) {
      writer.copy(tensor);
      continue;
    }
    const std::string blk(tensor.name.substr(0, at));
    const input::GgufTensor* values = gguf.find(blk + ".attn_v_b.weight");
    if (!values) return Error{fmt::format("{}: {} has no attn_v_b", gguf.path(), blk)};
    const std::vector<float> k = dequantized(tensor), v = dequantized(*values);
    std::vector<std::byte> joined(static_cast<size_t>(rank * heads * (nope + v_dim)) * 2);
    size_t out = 0;
    const auto put = [&](float value) {
      const uint16_t half = float_to_half(value);
      std::memcpy(&joined[out], &half, 2);
      out += 2;
    };
    for (int64_t head = 0; head < heads; ++head) {
      for (int64_t row = 0; row < nope; ++row) {
        for (int64_t r = 0; r < rank; ++r) {
          put(k[static_cast<size_t>((head * rank + r) * nope + row)]);
        }
      }
      for (int64_t i = 0; i < v_dim * rank; ++i) {
        put(v[static_cast<size_t>(head * v_dim * rank + i)]);
      }
    }
    writer.add_tensor(blk + ".attn_kv_b.weight", DType::F16, {rank, heads * (nope + v_dim)},
                      std::move(joined));
  }
  return writer.write(out_path);
}

}  // namespace ktx::testing

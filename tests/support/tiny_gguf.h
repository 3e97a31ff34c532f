// Small GGUF files in memory, valid by default and invalid where a test says so.
//
//   TinyGguf gguf = TinyGguf::good();
//   gguf.n_keys = uint64_t{1} << 63;              // a lie in the header
//   gguf.tensors[1].offset = 8;                   // not aligned, and overlapping
//   dir.write("bad.gguf", gguf.bytes());
//
// What is not overridden is computed: counts, offsets, padding.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ktx::testing {

template <class T>
std::string le(T value) {
  std::string bytes(sizeof(T), '\0');
  std::memcpy(bytes.data(), &value, sizeof(T));
  return bytes;
}

inline std::string gguf_text(std::string_view text) {
  return le<uint64_t>(text.size()).append(text);
}

// key, type number, value as it lies in the file
inline std::string gguf_pair(std::string_view key, uint32_t type, std::string_view payload) {
  return gguf_text(key) + le<uint32_t>(type) + std::string(payload);
}
inline std::string gguf_u32(std::string_view key, uint32_t value) {
  return gguf_pair(key, 4, le(value));
}
inline std::string gguf_f32(std::string_view key, float value) {
  return gguf_pair(key, 6, le(value));
}
inline std::string gguf_bool(std::string_view key, bool value) {
  return gguf_pair(key, 7, le<uint8_t>(value));
}
inline std::string gguf_str(std::string_view key, std::string_view value) {
  return gguf_pair(key, 8, gguf_text(value));
}
// payload: the elements as they lie in the file
inline std::string gguf_array(std::string_view key, uint32_t element_type, uint64_t count,
                              std::string_view payload) {
  return gguf_pair(key, 9, le<uint32_t>(element_type) + le<uint64_t>(count) + std::string(payload));
}
inline std::string gguf_strs(std::string_view key, const std::vector<std::string>& values) {
  std::string payload;
  for (const std::string& value : values) payload += gguf_text(value);
  return gguf_array(key, 8, values.size(), payload);
}

struct TinyTensor {
  std::string name;
  std::vector<uint64_t> dims;
  uint32_t type = 0;                    // GGUF's number
  uint64_t size_bytes = 0;              // room in the data section
  std::optional<uint32_t> n_dims = {};  // else dims.size()
  std::optional<uint64_t> offset = {};  // else packed
};

struct TinyGguf {
  std::string magic = "GGUF";
  uint32_t version = 3;
  std::optional<uint64_t> n_tensors, n_keys;  // else what is there
  std::vector<std::string> pairs;             // gguf_pair and its kin
  std::vector<TinyTensor> tensors;
  uint64_t alignment = 32;  // used for packing; not written as a key

  static TinyGguf good() {
    TinyGguf gguf;
    gguf.pairs = {
        gguf_str("general.architecture", "llama"),
        gguf_u32("llama.block_count", 1),
        gguf_f32("llama.rope.freq_base", 10000.f),
        gguf_bool("tokenizer.ggml.add_bos_token", true),
        gguf_strs("tokenizer.ggml.tokens", {"<unk>", "a", "bc"}),
        gguf_array("tokenizer.ggml.scores", 6, 3, le(0.f) + le(-1.f) + le(-2.f)),
    };
    gguf.tensors = {
        {"token_embd.weight", {32, 3}, 8, 102},    // Q8_0
        {"blk.0.attn_norm.weight", {32}, 0, 128},  // F32
        {"blk.0.ffn_up.weight", {32, 4}, 1, 256},  // F16
    };
    return gguf;
  }

  uint64_t padded(uint64_t size) const { return (size + alignment - 1) / alignment * alignment; }

  std::string header() const {
    std::string bytes = magic + le(version) + le<uint64_t>(n_tensors.value_or(tensors.size())) +
                        le<uint64_t>(n_keys.value_or(pairs.size()));
    for (const std::string& pair : pairs) bytes += pair;
    uint64_t packed = 0;
    for (const TinyTensor& tensor : tensors) {
      bytes += gguf_text(tensor.name);
      bytes += le<uint32_t>(tensor.n_dims.value_or(static_cast<uint32_t>(tensor.dims.size())));
      for (const uint64_t dim : tensor.dims) bytes += le(dim);
      bytes += le(tensor.type) + le<uint64_t>(tensor.offset.value_or(packed));
      packed += padded(tensor.size_bytes);
    }
    return bytes;
  }

  std::string bytes() const {
    std::string bytes = header();
    bytes.resize(padded(bytes.size()));
    for (const TinyTensor& tensor : tensors)
      bytes.resize(bytes.size() + padded(tensor.size_bytes), 'w');
    return bytes;
  }
};

}  // namespace ktx::testing

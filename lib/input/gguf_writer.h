// Writes a GGUF v3 file in one pass: header first, then tensors of any size from
// a producer, through a work file that is renamed into place at the end.
//
//   GgufWriter writer;
//   writer.add("general.architecture", "llama");
//   writer.add_u32("llama.block_count", 3);
//   writer.add_tensor("output.weight", DType::Q6_K, {256, 2048}, producer);
//   KTX_TRY(writer.write("out.gguf", 4));
//
// Not for untrusted callers: names and shapes are taken as given. On failure the
// work file is removed and the target untouched.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lib/formats/dtype.h"
#include "lib/input/gguf.h"
#include "lib/support/result.h"

namespace ktx::input {

// Fills `out` with the tensor's bytes [offset, offset + out.size()). Called from
// several threads at once, in any order; offset and size are multiples of the
// type's block size in bytes.
using TensorProducer = std::function<void(uint64_t offset, std::span<std::byte> out)>;

class GgufWriter {
 public:
  void set_alignment(uint32_t alignment);  // also written as general.alignment

  void add_u8(std::string key, uint8_t value);
  void add_i8(std::string key, int8_t value);
  void add_u16(std::string key, uint16_t value);
  void add_i16(std::string key, int16_t value);
  void add_u32(std::string key, uint32_t value);
  void add_i32(std::string key, int32_t value);
  void add_u64(std::string key, uint64_t value);
  void add_i64(std::string key, int64_t value);
  void add_f32(std::string key, float value);
  void add_f64(std::string key, double value);
  void add_bool(std::string key, bool value);
  void add_string(std::string key, std::string_view value);
  void add_strings(std::string key, std::span<const std::string> values);
  void add_i32s(std::string key, std::span<const int32_t> values);
  void add_u32s(std::string key, std::span<const uint32_t> values);
  void add_u64s(std::string key, std::span<const uint64_t> values);
  void add_f32s(std::string key, std::span<const float> values);
  void add_bools(std::string key, const std::vector<bool>& values);
  // A value as it stands in another file.
  void copy(const GgufValue& value);

  // `shape` has ne0 (the row length) first.
  void add_tensor(std::string name, DType dtype, std::vector<int64_t> shape,
                  TensorProducer producer);
  void add_tensor(std::string name, DType dtype, std::vector<int64_t> shape,
                  std::vector<std::byte> bytes);
  // A table of 64-bit integers.
  void add_table(std::string name, std::span<const int64_t> values);
  // A tensor as it stands in another file, which must outlive write().
  void copy(const GgufTensor& tensor);

  uint64_t file_size() const;
  // The bytes before the data section, padding included.
  std::string header() const;
  // `sync`: on the disk before it has its name. Without, a power cut can lose it.
  Status write(const std::string& path, int threads = 1, bool sync = true) const;

 private:
  struct Tensor {
    std::string name;
    DType dtype;
    std::vector<int64_t> shape;
    uint64_t offset;  // in the data section
    uint64_t size_bytes;
    TensorProducer producer;
    uint32_t gguf_type = 0;  // ggml's number
  };
  void add_raw(std::string_view key, GgufType type, std::string_view payload);

  uint32_t alignment_ = 32;
  uint64_t n_keys_ = 0;
  std::string metadata_;  // encoded
  std::vector<Tensor> tensors_;
  uint64_t data_size_ = 0;
};

}  // namespace ktx::input

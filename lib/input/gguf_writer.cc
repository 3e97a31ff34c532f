#include "lib/input/gguf_writer.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <memory>
#include <mutex>
#include <thread>

#include "lib/support/work_file.h"

namespace ktx::input {
namespace {

constexpr uint64_t kChunkBytes = uint64_t{4} << 20;

template <class T>
std::string encode(T value) {
  std::string bytes(sizeof(T), '\0');
  std::memcpy(bytes.data(), &value, sizeof(T));
  return bytes;
}

std::string encode_string(std::string_view text) {
  return encode<uint64_t>(text.size()).append(text);
}

template <class T>
std::string encode_array(GgufType type, std::span<const T> values) {
  std::string bytes = encode(static_cast<uint32_t>(type)) + encode<uint64_t>(values.size());
  return bytes.append(reinterpret_cast<const char*>(values.data()), values.size_bytes());
}

uint64_t align(uint64_t offset, uint64_t alignment) {
  return (offset + alignment - 1) / alignment * alignment;
}

}  // namespace

void GgufWriter::add_raw(std::string_view key, GgufType type, std::string_view payload) {
  metadata_ += encode_string(key);
  metadata_ += encode(static_cast<uint32_t>(type));
  metadata_ += payload;
  ++n_keys_;
}

void GgufWriter::set_alignment(uint32_t alignment) {
  alignment_ = alignment;
  add_u32("general.alignment", alignment);
}

#define KTX_ADD(suffix, type, gguf_type)                       \
  void GgufWriter::add_##suffix(std::string key, type value) { \
    add_raw(key, GgufType::gguf_type, encode(value));          \
  }
KTX_ADD(u8, uint8_t, U8)
KTX_ADD(i8, int8_t, I8)
KTX_ADD(u16, uint16_t, U16)
KTX_ADD(i16, int16_t, I16)
KTX_ADD(u32, uint32_t, U32)
KTX_ADD(i32, int32_t, I32)
KTX_ADD(u64, uint64_t, U64)
KTX_ADD(i64, int64_t, I64)
KTX_ADD(f32, float, F32)
KTX_ADD(f64, double, F64)
#undef KTX_ADD

void GgufWriter::add_bool(std::string key, bool value) {
  add_raw(key, GgufType::Bool, encode<uint8_t>(value ? 1 : 0));
}

void GgufWriter::add_string(std::string key, std::string_view value) {
  add_raw(key, GgufType::String, encode_string(value));
}

void GgufWriter::add_strings(std::string key, std::span<const std::string> values) {
  std::string payload =
      encode(static_cast<uint32_t>(GgufType::String)) + encode<uint64_t>(values.size());
  for (const std::string& value : values) payload += encode_string(value);
  add_raw(key, GgufType::Array, payload);
}

void GgufWriter::add_i32s(std::string key, std::span<const int32_t> values) {
  add_raw(key, GgufType::Array, encode_array(GgufType::I32, values));
}

void GgufWriter::add_u32s(std::string key, std::span<const uint32_t> values) {
  add_raw(key, GgufType::Array, encode_array(GgufType::U32, values));
}
void GgufWriter::add_u64s(std::string key, std::span<const uint64_t> values) {
  add_raw(key, GgufType::Array, encode_array(GgufType::U64, values));
}

void GgufWriter::add_f32s(std::string key, std::span<const float> values) {
  add_raw(key, GgufType::Array, encode_array(GgufType::F32, values));
}

void GgufWriter::add_bools(std::string key, const std::vector<bool>& values) {
  const std::vector<uint8_t> bytes(values.begin(), values.end());
  add_raw(key, GgufType::Array, encode_array(GgufType::Bool, std::span<const uint8_t>(bytes)));
}

void GgufWriter::copy(const GgufValue& value) {
  std::string payload;
  if (value.is_array()) {
    payload = encode(static_cast<uint32_t>(value.element_type)) + encode<uint64_t>(value.count);
  } else if (value.type == GgufType::String) {
    payload = encode<uint64_t>(value.payload.size());
  }
  payload.append(reinterpret_cast<const char*>(value.payload.data()), value.payload.size());
  add_raw(value.key, value.type, payload);
}

void GgufWriter::add_tensor(std::string name, DType dtype, std::vector<int64_t> shape,
                            TensorProducer producer) {
  int64_t rows = 1;
  for (size_t d = 1; d < shape.size(); ++d) rows *= shape[d];
  const auto row = row_bytes(dtype, shape.at(0));
  KTX_ASSERT(row.has_value());
  const auto size = static_cast<uint64_t>(*row * rows);
  const uint64_t offset = align(data_size_, alignment_);
  tensors_.push_back({std::move(name), dtype, std::move(shape), offset, size, std::move(producer),
                      static_cast<uint32_t>(info(dtype).gguf_id)});
  data_size_ = offset + size;
}

void GgufWriter::add_tensor(std::string name, DType dtype, std::vector<int64_t> shape,
                            std::vector<std::byte> bytes) {
  auto shared = std::make_shared<std::vector<std::byte>>(std::move(bytes));
  const size_t size = shared->size();
  add_tensor(std::move(name), dtype, std::move(shape),
             [shared](uint64_t offset, std::span<std::byte> out) {
               std::memcpy(out.data(), shared->data() + offset, out.size());
             });
  KTX_ASSERT(tensors_.back().size_bytes == size);
}

// Stored as pairs of 32-bit integers, but for its type and shape.
void GgufWriter::add_table(std::string name, std::span<const int64_t> values) {
  const auto bytes = std::as_bytes(values);
  const auto count = static_cast<int64_t>(values.size());
  add_tensor(std::move(name), DType::I32, {2 * count},
             std::vector<std::byte>(bytes.begin(), bytes.end()));
  tensors_.back().shape = {count};
  tensors_.back().gguf_type = kGgufI64;
}

void GgufWriter::copy(const GgufTensor& tensor) {
  const auto bytes = tensor.bytes;
  KTX_ASSERT(!tensor.i64);
  std::vector<int64_t> shape(tensor.shape.begin(), tensor.shape.begin() + tensor.n_dims);
  add_tensor(std::string(tensor.name), tensor.dtype, std::move(shape),
             [bytes](uint64_t offset, std::span<std::byte> out) {
               std::memcpy(out.data(), bytes.data() + offset, out.size());
             });
}

std::string GgufWriter::header() const {
  std::string bytes = "GGUF" + encode<uint32_t>(3) + encode<uint64_t>(tensors_.size()) +
                      encode<uint64_t>(n_keys_) + metadata_;
  for (const Tensor& tensor : tensors_) {
    bytes += encode_string(tensor.name);
    bytes += encode<uint32_t>(static_cast<uint32_t>(tensor.shape.size()));
    for (const int64_t dim : tensor.shape) bytes += encode<uint64_t>(static_cast<uint64_t>(dim));
    bytes += encode<uint32_t>(tensor.gguf_type);
    bytes += encode<uint64_t>(tensor.offset);
  }
  bytes.resize(align(bytes.size(), alignment_));
  return bytes;
}

uint64_t GgufWriter::file_size() const {
  return header().size() + align(data_size_, alignment_);
}

Status GgufWriter::write(const std::string& path, int threads, bool sync) const {
  const std::string head = header();
  WorkFile file = KTX_TRY(WorkFile::open(path, "GGUF"));
  KTX_TRY(file.truncate(0));  // what a killed program left
  KTX_TRY(file.reserve(head.size() + align(data_size_, alignment_)));
  KTX_TRY(file.write(0, std::as_bytes(std::span(head))));

  struct Chunk {
    const Tensor* tensor;
    uint64_t offset;
    uint64_t size;
  };
  std::vector<Chunk> chunks;
  for (const Tensor& tensor : tensors_) {
    const auto block = static_cast<uint64_t>(info(tensor.dtype).block_bytes);
    const uint64_t step = kChunkBytes / block * block;
    for (uint64_t at = 0; at < tensor.size_bytes; at += step) {
      chunks.push_back({&tensor, at, std::min(step, tensor.size_bytes - at)});
    }
  }
  std::atomic<size_t> next{0};
  std::mutex mutex;
  std::optional<Error> failure;
  const auto work = [&] {
    std::vector<std::byte> buffer(kChunkBytes);
    for (size_t i = next++; i < chunks.size(); i = next++) {
      const Chunk& chunk = chunks[i];
      const std::span<std::byte> out(buffer.data(), chunk.size);
      chunk.tensor->producer(chunk.offset, out);
      const Status status = file.write(head.size() + chunk.tensor->offset + chunk.offset, out);
      if (status.ok()) continue;
      const std::lock_guard lock(mutex);
      failure = status.error();
      next = chunks.size();
    }
  };
  std::vector<std::thread> pool;
  for (int t = 1; t < threads; ++t) pool.emplace_back(work);
  work();
  for (std::thread& thread : pool) thread.join();
  if (failure) return *failure;
  return file.commit(sync);
}

}  // namespace ktx::input

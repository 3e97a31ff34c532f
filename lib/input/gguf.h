// Opens a GGUF model (v2 or v3, one file or shards): maps it, checks it, and gives its header as
// tables of metadata and tensors. Reads no weights.
//
//   GgufFile gguf = KTX_TRY(GgufFile::open("model-00001-of-00003.gguf"));
//   gguf.string("general.architecture");      // "qwen3moe", or nothing
//   gguf.find("blk.0.attn_q.weight")->dtype;  // DType::Q4_K
//
// Safe for untrusted files: every length, count, offset and product is checked
// before use, work is linear in the size of the header, and what open() accepts
// can be used without further range checks. Failures are messages of the form
//
//   model.gguf: tensor 'blk.3.ffn_up.weight' at offset 1234 has 5 dimensions, expected 1 to 4
//
// All views (names, keys, strings, bytes) point into the mapping: they live as
// long as the GgufFile, also when it is moved. Immutable, so safe to share
// between threads.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lib/formats/dtype.h"
#include "lib/support/file_stamp.h"
#include "lib/support/mapped_file.h"
#include "lib/support/read_lock.h"
#include "lib/support/result.h"

namespace ktx::input {

// The type numbers of GGUF metadata.
enum class GgufType : uint32_t {
  U8 = 0,
  I8 = 1,
  U16 = 2,
  I16 = 3,
  U32 = 4,
  I32 = 5,
  F32 = 6,
  Bool = 7,
  String = 8,
  Array = 9,
  U64 = 10,
  I64 = 11,
  F64 = 12,
};
std::string_view name(GgufType type);  // "u32", "string", ...
uint64_t scalar_bytes(GgufType type);  // 0 for string, array and unknown types

// One key and its value. The getters give nothing when the value is of another
// kind: integers of every width and sign are one kind (where the number fits),
// f32 and f64 another; an integer is accepted as a number and 0/1 as a bool.
struct GgufValue {
  std::string_view key;
  GgufType type = GgufType::U8;
  GgufType element_type = GgufType::U8;  // of an array, else == type
  uint64_t count = 1;                    // of an array's elements, else 1
  // The number's bytes, the string's text, or an array's elements as they lie
  // in the file (strings: u64 length, text, and so on).
  std::span<const std::byte> payload;

  bool is_array() const { return type == GgufType::Array; }
  std::optional<uint64_t> u64() const;
  std::optional<int64_t> i64() const;
  std::optional<double> f64() const;
  std::optional<float> f32() const;
  std::optional<bool> boolean() const;
  std::optional<std::string_view> string() const;
  // Arrays; nothing when an element is of another kind. Copies (numbers) or
  // makes views (strings), at most 16 bytes an element.
  std::optional<std::vector<bool>> booleans() const;
  std::optional<std::vector<int64_t>> ints() const;
  std::optional<std::vector<float>> floats() const;
  std::optional<std::vector<std::string_view>> strings() const;
  // "array of 2048 strings", "u32 7", "string 'abc'": for messages.
  std::string describe() const;
};

struct GgufTensor {
  std::string_view name;
  DType dtype = DType::F32;
  std::array<int64_t, 4> shape = {1, 1, 1, 1};  // ne0 (row length) first
  int n_dims = 1;
  int64_t elems = 0;            // product of shape
  uint64_t offset_in_file = 0;  // of the shard's file
  uint64_t size_bytes = 0;
  int shard = 0;
  // Integers of eight bytes (GgufOptions::tables), which no format has: dtype says I32.
  bool i64 = false;
  // The weights in the mapping; empty when GgufFile::has_data() is false.
  std::span<const std::byte> bytes;
};

// The number of 64-bit integers among ggml's types; see GgufTensor::i64.
inline constexpr uint32_t kGgufI64 = 27;

struct GgufOptions {
  // Accept a file whose data section is cut off or missing: enough to check a
  // model without its weights. has_data() is then false and no tensor has bytes.
  bool header_only_ok = false;
  // Accept tensors of 64-bit integers, which are tables and no weights: the map of a draft head.
  bool tables = false;
  // The model is being moved into a plan (lib/support/moved_file.h): its files have the names of
  // that time, and weights that were moved already are zeros.
  bool moving = false;
  // By this process, which moves the model now or later: no other program may do so meanwhile.
  bool locked = false;
};

// One file of the model: the only one, or a shard.
struct GgufShard {
  MappedFile file;
  FileStamp stamp;  // as it was opened
  ReadLock lock;
  uint32_t version = 3;
  uint32_t alignment = 32;
  uint64_t header_size = 0;  // up to the last tensor description
  uint64_t data_offset = 0;  // header_size, padded to alignment
};

class GgufFile {
 public:
  // `path` is the file, or the first of its shards (…-00001-of-0000N.gguf): the
  // names of the others are built from it, never taken from metadata.
  static Result<GgufFile> open(const std::string& path, const GgufOptions& options = {});

  const std::string& path() const { return path_; }
  bool has_data() const { return has_data_; }
  std::span<const GgufShard> shards() const { return shards_; }
  // Everything before a shard's data section as it lies in the file, padding
  // included (shorter where the file ends before): what rebuilds the GGUF.
  std::span<const std::byte> header(int shard = 0) const;
  // An error once a file became smaller under the mapping; ask after reading weights.
  Status check() const;
  // The same, also for one that was changed or replaced since it was opened.
  Status check_unchanged() const;

  // Metadata of the first shard (the others hold only split.*), in file order.
  std::span<const GgufValue> metadata() const { return metadata_; }
  const GgufValue* value(std::string_view key) const;  // null when absent
  std::optional<uint64_t> u64(std::string_view key) const;
  std::optional<int64_t> i64(std::string_view key) const;
  std::optional<double> f64(std::string_view key) const;
  std::optional<float> f32(std::string_view key) const;
  std::optional<bool> boolean(std::string_view key) const;
  std::optional<std::string_view> string(std::string_view key) const;
  std::optional<std::vector<int64_t>> ints(std::string_view key) const;
  std::optional<std::vector<float>> floats(std::string_view key) const;
  std::optional<std::vector<std::string_view>> strings(std::string_view key) const;
  // general.architecture, or "" when it is missing.
  std::string_view architecture() const;

  // Tensors of all shards, in file order, shard after shard.
  std::span<const GgufTensor> tensors() const { return tensors_; }
  const GgufTensor* find(std::string_view name) const;  // null when absent
  bool has(std::string_view name) const { return find(name) != nullptr; }

  // Takes these tensors of another file as its own, which has none of these names: a draft head's
  // where it shares them with its model. The rest of that file is not seen.
  void borrow(GgufFile other, std::span<const std::string> names);

 private:
  friend class GgufReader;
  GgufFile() = default;

  std::string path_;
  std::vector<GgufShard> shards_;
  std::vector<GgufValue> metadata_;
  std::vector<GgufTensor> tensors_;
  // Indices sorted by name: no hash that a crafted file could degrade.
  std::vector<uint32_t> keys_by_name_;
  std::vector<uint32_t> tensors_by_name_;
  bool has_data_ = true;
};

}  // namespace ktx::input

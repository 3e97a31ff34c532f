// Reads and checks the header of a GGUF file and its shards.
//
//   magic "GGUF", u32 version, u64 tensors, u64 keys
//   per key:    string key, u32 type, value
//   per tensor: string name, u32 n_dims, u64 dims[n_dims], u32 type, u64 offset
//   padding to the alignment, then the data section that offsets count from
//
// Memory for a count is allocated only after the file is known to be long enough for it. Limits,
// far above any model in use, bound the cost of a hostile file of any size.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <filesystem>
#include <numeric>

#include "lib/input/file_kind.h"
#include "lib/input/gguf.h"
#include "lib/support/byte_reader.h"
#include "lib/support/moved_file.h"
#include "lib/support/shard_names.h"
#include "lib/support/strings.h"

namespace ktx::input {
namespace {

constexpr uint64_t kMaxHeaderBytes = uint64_t{1} << 30;
constexpr uint64_t kMaxKeys = uint64_t{1} << 20;
constexpr uint64_t kMaxTensors = uint64_t{1} << 20;
constexpr uint64_t kMaxKeyBytes = 65535;  // of the GGUF specification
constexpr uint64_t kMaxNameBytes = 64;    // likewise, for tensors
constexpr uint64_t kMaxStringBytes = uint64_t{1} << 26;
constexpr uint64_t kMaxArrayElems = uint64_t{1} << 26;  // all arrays of a file together
constexpr uint64_t kMaxAlignment = 65536;

constexpr uint64_t kMinKeyBytes = 8 + 1 + 4 + 1;             // key, type, a byte of value
constexpr uint64_t kMinTensorBytes = 8 + 1 + 4 + 8 + 4 + 8;  // name, n_dims, one dim, type, offset

std::string describe_tensor_type(uint32_t id) {
#define KTX_UNREAD_TYPE(gguf_id, name, why) \
  if (id == gguf_id) return fmt::format("{} ({}, {})", id, name, why);
#include "lib/input/gguf_unread_types.def"
#undef KTX_UNREAD_TYPE
  return fmt::format("{} (unknown; perhaps the file is newer than this program)", id);
}

// Indices of `items` by name; fails on the first name that occurs twice.
template <class Items, class NameOf>
Result<std::vector<uint32_t>> sort_by_name(const Items& items, NameOf name_of,
                                           const std::string& path, const char* what) {
  std::vector<uint32_t> order(items.size());
  std::iota(order.begin(), order.end(), 0u);
  std::sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
    const int by_name = name_of(items[a]).compare(name_of(items[b]));
    return by_name != 0 ? by_name < 0 : a < b;
  });
  for (size_t i = 1; i < order.size(); ++i) {
    const std::string_view name = name_of(items[order[i]]);
    if (name_of(items[order[i - 1]]) == name) {
      return Error{fmt::format("{}: {} '{}' occurs twice, expected once; the file is damaged", path,
                               what, printable(name))};
    }
  }
  return order;
}

// The header of one file.
class HeaderReader {
 public:
  HeaderReader(const std::string& path, std::span<const std::byte> bytes, bool tables)
      : path_(path),
        file_size_(bytes.size()),
        tables_(tables),
        in_(bytes.first(std::min<uint64_t>(bytes.size(), kMaxHeaderBytes))) {}

  Status read(GgufShard& shard, std::vector<GgufValue>& metadata,
              std::vector<GgufTensor>& tensors) {
    KTX_TRY(read_prefix(shard));
    metadata.reserve(n_keys_);  // read_prefix saw that this many can be in the file
    for (uint64_t i = 0; i < n_keys_; ++i) {
      where_ = fmt::format("key {} of {}", i + 1, n_keys_);
      metadata.push_back(KTX_TRY(read_pair()));
    }
    KTX_TRY(sort_by_name(
        metadata, [](const GgufValue& v) { return v.key; }, path_, "key"));
    KTX_TRY(read_alignment(shard, metadata));
    tensors.reserve(n_tensors_);
    for (uint64_t i = 0; i < n_tensors_; ++i) {
      where_ = fmt::format("tensor {} of {}", i + 1, n_tensors_);
      tensors.push_back(KTX_TRY(read_tensor(shard.alignment)));
    }
    shard.header_size = in_.position();
    shard.data_offset =
        (shard.header_size + shard.alignment - 1) / shard.alignment * shard.alignment;
    return {};
  }

 private:
  Error fail(uint64_t offset, std::string what) const {
    return Error{fmt::format("{}: {} at offset {}: {}", path_, where_, offset, what)};
  }

  // The file (or the part of it that a header may fill) is too short.
  Error cut(uint64_t wanted) const {
    if (file_size_ > kMaxHeaderBytes) {
      return fail(in_.position(),
                  fmt::format("the header is larger than {}, the most this program reads; "
                              "the file is damaged",
                              human_bytes(kMaxHeaderBytes)));
    }
    return fail(in_.position(),
                fmt::format("the file ends {} bytes further on, expected at least {}; "
                            "it is cut off or damaged",
                            in_.remaining(), wanted));
  }

  template <class T>
  Result<T> number() {
    const auto value = in_.read<T>();
    if (!value) return cut(sizeof(T));
    return *value;
  }

  // A string of min..max bytes.
  Result<std::string_view> text(uint64_t min_bytes, uint64_t max_bytes, const char* what) {
    const uint64_t at = in_.position();
    const uint64_t length = KTX_TRY(number<uint64_t>());
    if (length < min_bytes || length > max_bytes) {
      return fail(at, fmt::format("{} is {} bytes long, expected {} to {}", what, length, min_bytes,
                                  max_bytes));
    }
    const auto view = in_.take_text(length);
    if (!view) return cut(length);
    return *view;
  }

  Status read_prefix(GgufShard& shard) {
    where_ = "header";
    const auto bytes = shard.file.bytes();
    const FileKind kind = file_kind(bytes);
    if (kind == FileKind::GgufSwapped) {
      return Error{
          fmt::format("{}: the file is a GGUF of a big-endian machine, expected "
                      "little-endian; convert the model again for this machine",
                      path_)};
    }
    if (kind != FileKind::Gguf) {
      return Error{
          fmt::format("{}: not a GGUF file: it begins with '{}', expected 'GGUF'; it is {}", path_,
                      printable({reinterpret_cast<const char*>(bytes.data()),
                                 std::min<size_t>(bytes.size(), 4)}),
                      describe(kind))};
    }
    (void)in_.take(4);
    shard.version = KTX_TRY(number<uint32_t>());
    if (shard.version == 1) {
      return fail(4, "GGUF version 1, expected 2 or 3; convert the model again");
    }
    if (shard.version != 2 && shard.version != 3) {
      return fail(4, fmt::format("GGUF version {}, expected 2 or 3", shard.version));
    }
    n_tensors_ = KTX_TRY(number<uint64_t>());
    n_keys_ = KTX_TRY(number<uint64_t>());
    const uint64_t left = in_.remaining();
    KTX_TRY(check_count(8, "tensors", n_tensors_, kMaxTensors, left / kMinTensorBytes));
    KTX_TRY(check_count(16, "keys", n_keys_, kMaxKeys, left / kMinKeyBytes));
    return {};
  }

  Status check_count(uint64_t offset, const char* what, uint64_t count, uint64_t limit,
                     uint64_t room) const {
    if (count > limit)
      return fail(offset, fmt::format("{} {}, expected at most {}", count, what, limit));
    if (count > room) {
      return fail(
          offset,
          fmt::format("{} {}, but the file has room for {} at most; it is cut off or damaged",
                      count, what, room));
    }
    return {};
  }

  Result<GgufValue> read_pair() {
    const uint64_t at = in_.position();
    GgufValue value;
    value.key = KTX_TRY(text(1, kMaxKeyBytes, "the key's name"));
    where_ = fmt::format("key '{}'", printable(value.key));
    const uint32_t type = KTX_TRY(number<uint32_t>());
    if (type > static_cast<uint32_t>(GgufType::F64)) {
      return fail(at, fmt::format("value type {}, expected 0 to 12", type));
    }
    value.type = value.element_type = static_cast<GgufType>(type);
    if (value.is_array()) return read_array(value);
    if (value.type == GgufType::String) {
      const std::string_view view = KTX_TRY(text(0, kMaxStringBytes, "the string"));
      value.payload = std::as_bytes(std::span(view));
      return value;
    }
    const uint64_t value_at = in_.position();
    const auto payload = in_.take(scalar_bytes(value.type));
    if (!payload) return cut(scalar_bytes(value.type));
    value.payload = *payload;
    KTX_TRY(check_bools(value, value_at));
    return value;
  }

  Result<GgufValue> read_array(GgufValue value) {
    const uint64_t at = in_.position();
    const uint32_t type = KTX_TRY(number<uint32_t>());
    if (type == static_cast<uint32_t>(GgufType::Array)) {
      return fail(at, "an array of arrays, expected an array of numbers, bools or strings");
    }
    if (type > static_cast<uint32_t>(GgufType::F64)) {
      return fail(at, fmt::format("array element type {}, expected 0 to 12", type));
    }
    value.element_type = static_cast<GgufType>(type);
    const uint64_t count_at = in_.position();
    value.count = KTX_TRY(number<uint64_t>());
    const bool of_strings = value.element_type == GgufType::String;
    const uint64_t element_bytes = of_strings ? 8 : scalar_bytes(value.element_type);
    KTX_TRY(check_count(count_at, "array elements", value.count, kMaxArrayElems - array_elems_,
                        in_.remaining() / element_bytes));
    array_elems_ += value.count;
    const ByteReader start = in_;
    const uint64_t begin = in_.position();
    if (of_strings) {
      for (uint64_t i = 0; i < value.count; ++i) {
        KTX_TRY(text(0, kMaxStringBytes, "a string of the array"));
      }
    } else {
      (void)in_.take(value.count * element_bytes);
    }
    ByteReader whole = start;
    value.payload = *whole.take(in_.position() - begin);
    KTX_TRY(check_bools(value, begin));
    return value;
  }

  Status check_bools(const GgufValue& value, uint64_t at) const {
    if (value.element_type != GgufType::Bool) return {};
    for (size_t i = 0; i < value.payload.size(); ++i) {
      const auto byte = std::to_integer<unsigned>(value.payload[i]);
      if (byte > 1) return fail(at + i, fmt::format("a bool of value {}, expected 0 or 1", byte));
    }
    return {};
  }

  Status read_alignment(GgufShard& shard, const std::vector<GgufValue>& metadata) {
    for (const GgufValue& value : metadata) {
      if (value.key != "general.alignment") continue;
      const auto alignment = value.u64();
      if (!alignment || *alignment == 0 || *alignment > kMaxAlignment ||
          !std::has_single_bit(*alignment)) {
        return Error{
            fmt::format("{}: key 'general.alignment' is {}, expected a power of two from 1 to {}",
                        path_, value.describe(), kMaxAlignment)};
      }
      shard.alignment = static_cast<uint32_t>(*alignment);
    }
    return {};
  }

  Result<GgufTensor> read_tensor(uint64_t alignment) {
    const uint64_t at = in_.position();
    GgufTensor tensor;
    tensor.name = KTX_TRY(text(1, kMaxNameBytes, "the tensor's name"));
    where_ = fmt::format("tensor '{}'", printable(tensor.name));
    const uint32_t n_dims = KTX_TRY(number<uint32_t>());
    if (n_dims < 1 || n_dims > 4) {
      return fail(at, fmt::format("{} dimensions, expected 1 to 4", n_dims));
    }
    tensor.n_dims = static_cast<int>(n_dims);
    tensor.elems = 1;
    for (uint32_t d = 0; d < n_dims; ++d) {
      const uint64_t dim = KTX_TRY(number<uint64_t>());
      int64_t product = 0;
      if (dim < 1 || dim > static_cast<uint64_t>(INT64_MAX) ||
          __builtin_mul_overflow(tensor.elems, static_cast<int64_t>(dim), &product)) {
        return fail(at, fmt::format("dimension {} is {}, expected at least 1 and fewer than 2^63 "
                                    "elements in all",
                                    d, dim));
      }
      tensor.elems = product;
      tensor.shape[d] = static_cast<int64_t>(dim);
    }
    const uint32_t type = KTX_TRY(number<uint32_t>());
    tensor.i64 = tables_ && type == kGgufI64;
    const auto dtype = tensor.i64 ? std::optional(DType::I32) : dtype_from_gguf_id(type);
    if (!dtype)
      return fail(at, fmt::format("tensor type {} cannot be read", describe_tensor_type(type)));
    tensor.dtype = *dtype;
    const int64_t units = tensor.shape[0] > INT64_MAX / 2 ? -1 : tensor.shape[0] * 2;
    const auto row = row_bytes(*dtype, tensor.i64 ? units : tensor.shape[0]);
    int64_t size = 0;
    if (!row || __builtin_mul_overflow(*row, tensor.elems / tensor.shape[0], &size)) {
      return fail(
          at, fmt::format("rows of {} elements, expected a multiple of {} for {} and fewer than "
                          "2^63 bytes in all [KTX-Q002]",
                          tensor.shape[0], info(*dtype).block_elems, ktx::name(*dtype)));
    }
    tensor.size_bytes = static_cast<uint64_t>(size);
    tensor.offset_in_file = KTX_TRY(number<uint64_t>());  // of the data section, for now
    if (tensor.offset_in_file % alignment != 0) {
      return fail(at, fmt::format("data offset {}, expected a multiple of the alignment {}",
                                  tensor.offset_in_file, alignment));
    }
    return tensor;
  }

  const std::string& path_;
  uint64_t file_size_;
  const bool tables_;
  ByteReader in_;
  uint64_t n_tensors_ = 0;
  uint64_t n_keys_ = 0;
  uint64_t array_elems_ = 0;
  std::string where_;
};

// From offsets in the data section to offsets in the file, inside of it and apart.
Status place_tensors(const GgufShard& shard, const std::string& path, bool header_only_ok,
                     std::span<GgufTensor> tensors, bool& has_data) {
  const uint64_t file_size = shard.file.bytes().size();
  for (GgufTensor& tensor : tensors) {
    const auto begin = checked_add(shard.data_offset, tensor.offset_in_file);
    const auto end = begin ? checked_add(*begin, tensor.size_bytes) : std::nullopt;
    if (!end || *end > uint64_t{INT64_MAX}) {
      return Error{fmt::format("{}: tensor '{}' has data offset {} and {} bytes: past any file",
                               path, printable(tensor.name), tensor.offset_in_file,
                               tensor.size_bytes)};
    }
    tensor.offset_in_file = *begin;
    if (*end <= file_size) continue;
    if (!header_only_ok) {
      return Error{
          fmt::format("{}: tensor '{}' ends at offset {}, but the file at {}; it is cut off "
                      "or damaged",
                      path, printable(tensor.name), *end, file_size)};
    }
    has_data = false;
  }
  std::vector<const GgufTensor*> order;
  order.reserve(tensors.size());
  for (const GgufTensor& tensor : tensors) order.push_back(&tensor);
  std::stable_sort(order.begin(), order.end(), [](const GgufTensor* a, const GgufTensor* b) {
    return a->offset_in_file < b->offset_in_file;
  });
  for (size_t i = 1; i < order.size(); ++i) {
    const GgufTensor& before = *order[i - 1];
    if (before.offset_in_file + before.size_bytes <= order[i]->offset_in_file) continue;
    return Error{
        fmt::format("{}: tensor '{}' begins at offset {}, inside of tensor '{}' ({} to {})", path,
                    printable(order[i]->name), order[i]->offset_in_file, printable(before.name),
                    before.offset_in_file, before.offset_in_file + before.size_bytes)};
  }
  return {};
}

// A count in the metadata of a shard: absent is nothing, another kind an error.
Result<std::optional<uint64_t>> shard_count(const std::string& path,
                                            std::span<const GgufValue> metadata,
                                            std::string_view key) {
  for (const GgufValue& value : metadata) {
    if (value.key != key) continue;
    const auto number = value.u64();
    if (!number || *number > UINT32_MAX) {
      return Error{
          fmt::format("{}: key '{}' is {}, expected a count", path, key, value.describe())};
    }
    return number;
  }
  return std::optional<uint64_t>();
}

}  // namespace

// Puts the shards together; a friend of GgufFile.
class GgufReader {
 public:
  static Result<GgufFile> open(const std::string& path, const GgufOptions& options) {
    GgufFile gguf;
    gguf.path_ = path;
    gguf.metadata_ = KTX_TRY(read_shard(gguf, path, options));
    const auto count = KTX_TRY(shard_count(path, gguf.metadata_, "split.count")).value_or(1);
    const auto number = KTX_TRY(shard_count(path, gguf.metadata_, "split.no")).value_or(0);
    if (count > 1 || number > 0) KTX_TRY(read_shards(gguf, count, number, options));
    const auto total = KTX_TRY(shard_count(path, gguf.metadata_, "split.tensors.count"));
    if (total && count > 1 && *total != gguf.tensors_.size()) {
      return Error{
          fmt::format("{}: key 'split.tensors.count' is {}, but the {} shards have {} tensors",
                      path, *total, count, gguf.tensors_.size())};
    }
    gguf.keys_by_name_ = KTX_TRY(sort_by_name(
        gguf.metadata_, [](const GgufValue& v) { return v.key; }, path, "key"));
    gguf.tensors_by_name_ = KTX_TRY(sort_by_name(
        gguf.tensors_, [](const GgufTensor& t) { return t.name; }, path, "tensor"));
    for (GgufTensor& tensor : gguf.tensors_) {
      if (!gguf.has_data_) break;
      tensor.bytes =
          gguf.shards_[tensor.shard].file.bytes().subspan(tensor.offset_in_file, tensor.size_bytes);
    }
    KTX_TRY(gguf.check());
    return gguf;
  }

 private:
  // What a move has left of a model would be read as zeros.
  static Status refuse_moving(const std::string& path) {
    std::error_code error;
    const bool rest = path.ends_with(kMovingSuffix);
    if (!rest && (std::filesystem::exists(path, error) ||
                  !std::filesystem::exists(path + kMovingSuffix, error))) {
      return {};
    }
    return Error{
        fmt::format("{}: ktx-compile --consume was stopped while it moved this model into "
                    "a plan; give the same command again, which goes on with it",
                    rest ? path.substr(0, path.size() + 1 - sizeof(kMovingSuffix)) : path)};
  }

  // Appends the shard and its tensors; returns its metadata.
  static Result<std::vector<GgufValue>> read_shard(GgufFile& gguf, const std::string& path,
                                                   const GgufOptions& options) {
    if (!options.moving) KTX_TRY(refuse_moving(path));
    const std::string name = options.moving ? path + kMovingSuffix : path;
    // Before anything is read. What is wrong with a file is for its mapping to say.
    Result<ReadLock> lock = options.locked ? ReadLock() : ReadLock::take(name);
    Result<FileStamp> stamp = stamp_file(name);
    MappedFile file = KTX_TRY(MappedFile::open(name));
    GgufShard shard{std::move(file), KTX_TRY(std::move(stamp)), KTX_TRY(std::move(lock))};
    std::vector<GgufValue> metadata;
    std::vector<GgufTensor> tensors;
    KTX_TRY(HeaderReader(path, shard.file.bytes(), options.tables).read(shard, metadata, tensors));
    KTX_TRY(place_tensors(shard, path, options.header_only_ok, tensors, gguf.has_data_));
    for (GgufTensor& tensor : tensors) tensor.shard = static_cast<int>(gguf.shards_.size());
    gguf.tensors_.insert(gguf.tensors_.end(), tensors.begin(), tensors.end());
    gguf.shards_.push_back(std::move(shard));
    return metadata;
  }

  static Status read_shards(GgufFile& gguf, uint64_t count, uint64_t number,
                            const GgufOptions& options) {
    const std::string& path = gguf.path_;
    const auto name = parse_shard_name(path);
    if (number > 0) {
      const std::string first = name ? fmt::format("'{}'", shard_path(*name, 1))
                                     : "the one whose name ends in -00001-of-….gguf";
      return Error{fmt::format("{}: the file is shard {} of {}; give the first one, {}", path,
                               number + 1, count, first)};
    }
    if (!name || name->number != 1 || name->count != count) {
      return Error{
          fmt::format("{}: the file is shard 1 of {} (key 'split.count'), so its name must end in "
                      "'-00001-of-{:05}.gguf': the names of the others follow from it",
                      path, count, count)};
    }
    for (uint32_t i = 1; i < count; ++i) {
      const std::string other = shard_path(*name, i + 1);
      const auto metadata = read_shard(gguf, other, options);
      if (!metadata.ok()) {
        std::error_code error;
        const bool missing = !std::filesystem::exists(other, error);
        return Error{
            missing ? fmt::format("{}: no such file (shard {} of {}); all shards must lie "
                                  "beside the first",
                                  other, i + 1, count)
                    : fmt::format("{} (shard {} of {})", metadata.error().message, i + 1, count)};
      }
      const auto its_number = KTX_TRY(shard_count(other, *metadata, "split.no"));
      const auto its_count = KTX_TRY(shard_count(other, *metadata, "split.count"));
      if (its_number != i || its_count != count) {
        const auto text = [](std::optional<uint64_t> n) {
          return n ? fmt::format("{}", *n) : "missing";
        };
        return Error{
            fmt::format("{}: keys 'split.no' and 'split.count' are {} and {}, expected {} and {} "
                        "after '{}'; take the files of one download under the names that they had",
                        other, text(its_number), text(its_count), i, count, path)};
      }
    }
    return {};
  }
};

Result<GgufFile> GgufFile::open(const std::string& path, const GgufOptions& options) {
  return GgufReader::open(path, options);
}

}  // namespace ktx::input

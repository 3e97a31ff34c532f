// Look-ups in an opened GGUF; how it is read and checked is in gguf_reader.cc.
#include "lib/input/gguf.h"

#include <algorithm>
#include <utility>

namespace ktx::input {
namespace {

// Position of the item called `name` in `items`, by way of the sorted indices.
template <class Items, class NameOf>
const typename Items::value_type* look_up(const Items& items, const std::vector<uint32_t>& order,
                                          std::string_view name, NameOf name_of) {
  const auto at = std::lower_bound(
      order.begin(), order.end(), name,
      [&](uint32_t index, std::string_view wanted) { return name_of(items[index]) < wanted; });
  if (at == order.end() || name_of(items[*at]) != name) return nullptr;
  return &items[*at];
}

}  // namespace

const GgufValue* GgufFile::value(std::string_view key) const {
  return look_up(metadata_, keys_by_name_, key, [](const GgufValue& v) { return v.key; });
}

const GgufTensor* GgufFile::find(std::string_view name) const {
  return look_up(tensors_, tensors_by_name_, name, [](const GgufTensor& t) { return t.name; });
}

#define KTX_GETTER(type, getter)                                     \
  std::optional<type> GgufFile::getter(std::string_view key) const { \
    const GgufValue* found = value(key);                             \
    return found ? found->getter() : std::nullopt;                   \
  }
KTX_GETTER(uint64_t, u64)
KTX_GETTER(int64_t, i64)
KTX_GETTER(double, f64)
KTX_GETTER(float, f32)
KTX_GETTER(bool, boolean)
KTX_GETTER(std::string_view, string)
KTX_GETTER(std::vector<int64_t>, ints)
KTX_GETTER(std::vector<float>, floats)
KTX_GETTER(std::vector<std::string_view>, strings)
#undef KTX_GETTER

std::string_view GgufFile::architecture() const {
  return string("general.architecture").value_or("");
}

std::span<const std::byte> GgufFile::header(int shard) const {
  const auto bytes = shards_[shard].file.bytes();
  return bytes.first(std::min<uint64_t>(bytes.size(), shards_[shard].data_offset));
}

void GgufFile::borrow(GgufFile other, std::span<const std::string> names) {
  const auto first_shard = static_cast<int>(shards_.size());
  for (const std::string& name : names) {
    const GgufTensor* tensor = other.find(name);
    KTX_ASSERT(tensor != nullptr && !has(name));
    const auto at = std::lower_bound(
        tensors_by_name_.begin(), tensors_by_name_.end(), name,
        [&](uint32_t index, std::string_view wanted) { return tensors_[index].name < wanted; });
    tensors_by_name_.insert(at, static_cast<uint32_t>(tensors_.size()));
    tensors_.push_back(*tensor);
    tensors_.back().shard += first_shard;
  }
  has_data_ = has_data_ && other.has_data_;
  for (GgufShard& shard : other.shards_) shards_.push_back(std::move(shard));
}

Status GgufFile::check() const {
  for (const GgufShard& shard : shards_) KTX_TRY(shard.file.check());
  return {};
}

Status GgufFile::check_unchanged() const {
  KTX_TRY(check());
  for (const GgufShard& shard : shards_) {
    KTX_TRY(ktx::check_unchanged(shard.file.path(), shard.stamp));
  }
  return {};
}

}  // namespace ktx::input

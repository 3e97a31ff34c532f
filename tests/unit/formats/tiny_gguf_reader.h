// Just enough GGUF for the tests here, which link nothing but lib/formats: the
// tensors of a version 3 file by name. (The real reader is lib/input/gguf.h.)
#pragma once

#include <cstddef>
#include <cstdint>
#include <fstream>
#include <iterator>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lib/formats/dtype.h"
#include "lib/support/byte_reader.h"

namespace ktx {

struct TinyTensor {
  DType dtype;
  int64_t elems;
  std::span<const std::byte> data;
};

struct TinyGguf {
  std::vector<std::byte> bytes;  // what the spans point into
  std::map<std::string, TinyTensor> tensors;
};

inline std::optional<std::string> read_gguf_string(ByteReader& in) {
  const auto size = in.read<uint64_t>();
  const auto text = size ? in.take_text(*size) : std::nullopt;
  if (!text) return std::nullopt;
  return std::string(*text);
}

// Moves past a metadata value. Types: 0..7 and 10..12 are numbers, 8 a string, 9
// an array of its element type and count.
inline bool skip_gguf_value(ByteReader& in, uint32_t type) {
  constexpr uint64_t kSizes[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
  if (type == 8) return read_gguf_string(in).has_value();
  if (type == 9) {
    const auto item = in.read<uint32_t>();
    const auto count = in.read<uint64_t>();
    if (!item || !count || *item == 9) return false;
    for (uint64_t i = 0; i < *count; ++i) {
      if (!skip_gguf_value(in, *item)) return false;
    }
    return true;
  }
  return type < std::size(kSizes) && in.take(kSizes[type]).has_value();
}

inline std::optional<TinyGguf> read_tiny_gguf(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return std::nullopt;
  const std::vector<char> chars{std::istreambuf_iterator<char>(file), {}};
  TinyGguf gguf;
  gguf.bytes.assign(reinterpret_cast<const std::byte*>(chars.data()),
                    reinterpret_cast<const std::byte*>(chars.data()) + chars.size());
  ByteReader in(gguf.bytes);
  if (in.take_text(4) != "GGUF" || in.read<uint32_t>() != 3u) return std::nullopt;
  const auto tensor_count = in.read<uint64_t>();
  const auto value_count = in.read<uint64_t>();
  if (!tensor_count || !value_count) return std::nullopt;
  for (uint64_t i = 0; i < *value_count; ++i) {
    const auto key = read_gguf_string(in);
    const auto type = in.read<uint32_t>();
    if (!key || !type || !skip_gguf_value(in, *type)) return std::nullopt;
  }
  struct Place {
    std::string name;
    DType dtype;
    int64_t elems;
    uint64_t offset;
  };
  std::vector<Place> places;
  for (uint64_t i = 0; i < *tensor_count; ++i) {
    auto name = read_gguf_string(in);
    const auto rank = in.read<uint32_t>();
    if (!name || !rank || *rank > 4) return std::nullopt;
    uint64_t elems = 1;
    for (uint32_t d = 0; d < *rank; ++d) {
      const auto size = in.read<uint64_t>();
      const auto product = size ? checked_mul(elems, *size) : std::nullopt;
      if (!product) return std::nullopt;
      elems = *product;
    }
    const auto type = in.read<uint32_t>();
    const auto offset = in.read<uint64_t>();
    const auto dtype = type ? dtype_from_gguf_id(*type) : std::nullopt;
    if (!dtype || !offset) return std::nullopt;
    places.push_back({std::move(*name), *dtype, static_cast<int64_t>(elems), *offset});
  }
  const auto data_start = checked_align(in.position(), 32);  // the default alignment
  for (const Place& place : places) {
    const auto size = row_bytes(place.dtype, place.elems);
    const auto start = checked_add(*data_start, place.offset);
    ByteReader data(gguf.bytes);
    if (!size || !start || !data.take(*start)) return std::nullopt;
    const auto view = data.take(static_cast<uint64_t>(*size));
    if (!view) return std::nullopt;
    gguf.tensors[place.name] = {place.dtype, place.elems, *view};
  }
  return gguf;
}

}  // namespace ktx

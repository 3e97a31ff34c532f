#include "lib/formats/dtype.h"

namespace ktx {
namespace {

constexpr DTypeInfo kDTypes[] = {
#define KTX_DTYPE(id, name, gguf, elems, bytes) {DType::id, name, gguf, elems, bytes},
#include "lib/formats/dtype.def"
#undef KTX_DTYPE
};

}  // namespace

std::span<const DTypeInfo> all_dtypes() {
  return kDTypes;
}

const DTypeInfo& info(DType dtype) {
  return kDTypes[static_cast<int>(dtype)];
}

std::optional<DType> dtype_from_name(std::string_view name) {
  for (const DTypeInfo& row : kDTypes) {
    if (row.name == name) return row.dtype;
  }
  return std::nullopt;
}

std::optional<DType> dtype_from_gguf_id(uint32_t id) {
  for (const DTypeInfo& row : kDTypes) {
    if (row.gguf_id >= 0 && static_cast<uint32_t>(row.gguf_id) == id) return row.dtype;
  }
  return std::nullopt;
}

std::optional<int64_t> row_bytes(DType dtype, int64_t elems) {
  const DTypeInfo& row = info(dtype);
  if (elems < 0 || elems % row.block_elems != 0) return std::nullopt;
  int64_t bytes;
  if (__builtin_mul_overflow(elems / row.block_elems, int64_t{row.block_bytes}, &bytes)) {
    return std::nullopt;
  }
  return bytes;
}

}  // namespace ktx

// Element and quantisation formats: the table of dtype.def as functions.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace ktx {

enum class DType : uint8_t {
#define KTX_DTYPE(id, name, gguf, elems, bytes) id,
#include "lib/formats/dtype.def"
#undef KTX_DTYPE
};

struct DTypeInfo {
  DType dtype;
  std::string_view name;
  int gguf_id;
  int block_elems;
  int block_bytes;
};

std::span<const DTypeInfo> all_dtypes();
const DTypeInfo& info(DType dtype);
inline std::string_view name(DType dtype) {
  return info(dtype).name;
}

std::optional<DType> dtype_from_name(std::string_view name);
std::optional<DType> dtype_from_gguf_id(uint32_t id);

// Bytes of one row of `elems` weights; nothing when elems is no multiple of the
// block or the size does not fit 63 bits. Safe for untrusted counts.
std::optional<int64_t> row_bytes(DType dtype, int64_t elems);

// Reference decode: `elems` weights (a multiple of the block) from `packed`, bit
// for bit what ggml's reference gives. The oracle of every kernel. Safe for any
// bytes; fails for no input. I32 is not a weight format and may not be given.
void dequantize_row(DType dtype, const void* packed, int64_t elems, float* out);

// IEEE half and bfloat16 to float, exactly; float to half rounds to nearest even.
float half_to_float(uint16_t half);
uint16_t float_to_half(float value);
float bfloat16_to_float(uint16_t value);
uint16_t float_to_bfloat16(float value);

}  // namespace ktx

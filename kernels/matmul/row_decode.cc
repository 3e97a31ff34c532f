#include "kernels/matmul/row_decode.h"

#include "kernels/matmul/dequant_avx2.h"

namespace ktx::kernels {
namespace {

template <DType kType>
void scalar_row(const void* packed, int64_t elems, float* out) {
  dequantize_row(kType, packed, elems, out);
}

template <DType kType>
void scalar_int8_row(const void* packed, int64_t elems, int8_t* codes, float* scales, float* mins) {
  decode_int8_row(kType, packed, elems, codes, scales, mins);
}

constexpr RowDecoder kScalarRows[] = {
#define KTX_DTYPE(id, name, gguf, elems, bytes) scalar_row<DType::id>,
#include "lib/formats/dtype.def"
#undef KTX_DTYPE
};

constexpr Int8Decoder kScalarInt8Rows[] = {
#define KTX_DTYPE(id, name, gguf, elems, bytes) scalar_int8_row<DType::id>,
#include "lib/formats/dtype.def"
#undef KTX_DTYPE
};

}  // namespace

RowDecoder row_decoder(DType dtype, Isa isa) {
  if (dtype == DType::I32) return nullptr;
  const auto index = static_cast<size_t>(dtype);
  return isa >= Isa::Avx2 ? kRowDecodersAvx2[index] : kScalarRows[index];
}

Int8Decoder int8_decoder(DType dtype, Isa isa) {
  if (!int8_form(dtype)) return nullptr;
  const auto index = static_cast<size_t>(dtype);
  return isa >= Isa::Avx2 ? kInt8DecodersAvx2[index] : kScalarInt8Rows[index];
}

}  // namespace ktx::kernels

// dequantize_row and decode_int8_row: a row is its blocks one after the other.
//
// Blocks are decoded in dequant_simple.cc (Q4_0 ... Q8_0, Q1_0, Q2_0, MXFP4, NVFP4, IQ4_NL),
// dequant_k.cc (Q2_K ... Q6_K), dequant_iq.cc and dequant_ternary.cc. The code aims at being
// obviously right, not at speed: kernels are tested against it.
#include <cstring>

#include "lib/formats/int8_block.h"
#include "lib/formats/int8_form.h"
#include "lib/support/result.h"

namespace ktx {
namespace {

template <DType kType>
struct Format;  // kForm of the types of int8_forms.def
#define KTX_INT8_FORM(id, group, has_min)            \
  template <>                                        \
  struct Format<DType::id> {                         \
    static constexpr Int8Form kForm{group, has_min}; \
  };
#include "lib/formats/int8_forms.def"
#undef KTX_INT8_FORM

template <class Block>
Block load_block(const void* packed, int64_t index) {
  Block block;  // rows in a file are not aligned
  std::memcpy(&block, static_cast<const char*>(packed) + index * int64_t{sizeof(Block)},
              sizeof(Block));
  return block;
}

template <DType kType, class Block, int kElems>
void int8_row(const void* packed, int64_t elems, int8_t* codes, float* scales, float* mins) {
  constexpr Int8Form kForm = Format<kType>::kForm;
  constexpr int kGroups = kElems / kForm.group;
  for (int64_t i = 0; i < elems / kElems; ++i) {
    decode_block(load_block<Block>(packed, i), {codes + i * kElems, scales + i * kGroups,
                                                kForm.has_min ? mins + i * kGroups : nullptr});
  }
}

template <DType kType, class Block, int kElems>
void float_row(const void* packed, int64_t elems, float* out) {
  constexpr Int8Form kForm = Format<kType>::kForm;
  int8_t codes[kElems];
  float scales[kElems / kForm.group];
  float mins[kElems / kForm.group];
  for (int64_t i = 0; i < elems / kElems; ++i) {
    decode_block(load_block<Block>(packed, i), {codes, scales, mins});
    for (int j = 0; j < kElems; ++j) {
      const float product = scales[j / kForm.group] * static_cast<float>(codes[j]);
      out[i * kElems + j] = kForm.has_min ? product - mins[j / kForm.group] : product;
    }
  }
}

template <class Block, float (*kConvert)(uint16_t)>
void half_row(const void* packed, int64_t elems, float* out) {
  for (int64_t i = 0; i < elems; ++i) out[i] = kConvert(load_block<Block>(packed, i).value);
}

void f32_row(const void* packed, int64_t elems, float* out) {
  if (elems > 0) std::memcpy(out, packed, static_cast<size_t>(elems) * sizeof(float));
}

// Rows by dtype; null where a type has no such form.
struct RowFunctions {
  std::optional<Int8Form> form;
  void (*to_int8)(const void* packed, int64_t elems, int8_t* codes, float* scales, float* mins);
  void (*to_float)(const void* packed, int64_t elems, float* out);
};

template <DType kType, class Block, int kElems>
constexpr RowFunctions row_functions() {
  if constexpr (kType == DType::F32) {
    return {std::nullopt, nullptr, f32_row};
  } else if constexpr (kType == DType::F16) {
    return {std::nullopt, nullptr, half_row<Block, half_to_float>};
  } else if constexpr (kType == DType::BF16) {
    return {std::nullopt, nullptr, half_row<Block, bfloat16_to_float>};
  } else if constexpr (kType == DType::I32) {
    return {};
  } else {
    return {Format<kType>::kForm, int8_row<kType, Block, kElems>, float_row<kType, Block, kElems>};
  }
}

constexpr RowFunctions kRows[] = {
#define KTX_DTYPE(id, name, gguf, elems, bytes) row_functions<DType::id, Block##id, elems>(),
#include "lib/formats/dtype.def"
#undef KTX_DTYPE
};

const RowFunctions& row(DType dtype) {
  return kRows[static_cast<int>(dtype)];
}

}  // namespace

void dequantize_row(DType dtype, const void* packed, int64_t elems, float* out) {
  KTX_ASSERT(row(dtype).to_float != nullptr && elems % info(dtype).block_elems == 0);
  row(dtype).to_float(packed, elems, out);
}

std::optional<Int8Form> int8_form(DType dtype) {
  return row(dtype).form;
}

void decode_int8_row(DType dtype, const void* packed, int64_t elems, int8_t* codes, float* scales,
                     float* mins) {
  KTX_ASSERT(row(dtype).to_int8 != nullptr && elems % info(dtype).block_elems == 0);
  row(dtype).to_int8(packed, elems, codes, scales, mins);
}

}  // namespace ktx

#include "lib/arch/usual_types.h"

namespace ktx::arch {
namespace {

// The layers that get more bits: the first and last eighth, and each third between.
bool more_bits(int32_t layer, int32_t layers) {
  return layer < layers / 8 || layer >= 7 * layers / 8 || (layer - layers / 8) % 3 == 2;
}

bool contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

DType wanted(std::string_view tensor, int32_t layer, const ModelShape& model) {
  if (tensor == "output.weight") return DType::Q6_K;
  if (tensor == "token_embd.weight") return model.tied ? DType::Q6_K : DType::Q4_K;
  if (contains(tensor, "attn_v.") || contains(tensor, "attn_k.")) {
    if (model.experts == 8) return DType::Q8_0;
    if (contains(tensor, "attn_v.") && more_bits(layer, model.layers)) return DType::Q6_K;
  }
  if (contains(tensor, "attn_qkv.")) return DType::Q5_K;
  if (contains(tensor, "attn_output") && model.experts == 8) return DType::Q5_K;
  if (contains(tensor, "ffn_down") && more_bits(layer, model.layers)) return DType::Q6_K;
  return DType::Q4_K;
}

// For rows that are no multiple of 256.
DType smaller_blocks(DType dtype) {
  if (dtype == DType::Q4_K) return DType::Q5_0;
  if (dtype == DType::Q5_K) return DType::Q5_1;
  return DType::Q8_0;
}

}  // namespace

DType usual_dtype(std::string_view tensor, int64_t cols, int64_t rows, int32_t layer,
                  const ModelShape& model) {
  if (rows == 1 || contains(tensor, "_norm") || contains(tensor, "ffn_gate_inp") ||
      tensor.ends_with(".bias")) {
    return DType::F32;
  }
  DType dtype = wanted(tensor, layer, model);
  if (!row_bytes(dtype, cols)) dtype = smaller_blocks(dtype);
  return row_bytes(dtype, cols) ? dtype : DType::F16;
}

}  // namespace ktx::arch

#include "lib/arch/usual_types.h"

#include <algorithm>
#include <cctype>

namespace ktx::arch {

// The layers in which values and ffn_down have types of their own.
enum class Few : uint8_t { None, Sixteenth, Eighth, MoreBits };

struct UsualTypes {
  const char* name;
  DType rest, head, embedding, values, down, output, qkv;
  Few few;
  DType few_values, few_down;
};

namespace {

constexpr UsualTypes kTypes[] = {
#define KTX_USUAL_TYPES(name, rest, head, embedding, values, down, output, qkv, few, few_values, \
                        few_down)                                                                \
  {name,          DType::rest, DType::head, DType::embedding,  DType::values,  DType::down,      \
   DType::output, DType::qkv,  Few::few,    DType::few_values, DType::few_down},
#include "lib/arch/usual_types.def"
};

const UsualTypes& q4_k_m() {
  static const UsualTypes* const row = find_usual_types("Q4_K_M");
  return *row;
}

bool among(Few few, int32_t layer, int32_t layers) {
  switch (few) {
    case Few::None:
      return false;
    case Few::Sixteenth:
      return layer < layers / 16;
    case Few::Eighth:
      return layer < layers / 8;
    case Few::MoreBits:
      return layer < layers / 8 || layer >= 7 * layers / 8 || (layer - layers / 8) % 3 == 2;
  }
  return false;
}

bool contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

double bits(DType type) {
  return 8.0 * info(type).block_bytes / info(type).block_elems;
}

DType wanted(const UsualTypes& types, std::string_view tensor, int32_t layer,
             const ModelShape& model) {
  if (tensor == "output.weight") return types.head;
  if (tensor == "token_embd.weight") return model.tied ? types.head : types.embedding;
  const bool few = among(types.few, layer, model.layers);
  const bool eight = model.experts == 8;  // attention is small beside them
  if (contains(tensor, "attn_v.") || contains(tensor, "attn_k.")) {
    if (eight && bits(types.rest) < 8) return DType::Q8_0;
    if (contains(tensor, "attn_v.")) return few ? types.few_values : types.values;
  }
  if (contains(tensor, "attn_qkv.")) return types.qkv;
  if (contains(tensor, "attn_output"))
    return eight && bits(types.rest) < 5 ? DType::Q5_K : types.output;
  if (contains(tensor, "ffn_down")) return few ? types.few_down : types.down;
  return types.rest;
}

// For rows that are no multiple of 256.
DType smaller_blocks(DType dtype) {
  if (dtype == DType::Q4_K) return DType::Q5_0;
  if (dtype == DType::Q5_K) return DType::Q5_1;
  if (dtype == DType::Q6_K) return DType::Q8_0;
  return bits(dtype) < 5 ? DType::IQ4_NL : DType::Q8_0;
}

}  // namespace

const UsualTypes* find_usual_types(std::string_view name) {
  const auto* const found = std::ranges::find_if(kTypes, [&](const UsualTypes& row) {
    return std::ranges::equal(std::string_view(row.name), name, [](char a, char b) {
      return a == std::toupper(static_cast<unsigned char>(b));
    });
  });
  return found == std::end(kTypes) ? nullptr : found;
}

std::vector<std::string> usual_type_names() {
  std::vector<std::string> names;
  for (const UsualTypes& row : kTypes) names.emplace_back(row.name);
  return names;
}

DType usual_dtype(std::string_view tensor, int64_t cols, int64_t rows, int32_t layer,
                  const ModelShape& model, const UsualTypes* types) {
  if (rows == 1 || contains(tensor, "_norm") || contains(tensor, "ffn_gate_inp") ||
      tensor.ends_with(".bias")) {
    return DType::F32;
  }
  if (contains(tensor, "hc_") || contains(tensor, "compressor_ape")) return DType::F32;
  if (contains(tensor, "_tid2eid")) return DType::I32;
  if (contains(tensor, "altup_") && contains(tensor, "_coef")) return DType::F32;
  if (contains(tensor, "altup_") || contains(tensor, "laurel_")) {
    return types != nullptr && types->rest == DType::F32 ? DType::F32 : DType::F16;
  }
  DType dtype = wanted(types != nullptr ? *types : q4_k_m(), tensor, layer, model);
  if (!row_bytes(dtype, cols)) dtype = smaller_blocks(dtype);
  return row_bytes(dtype, cols) ? dtype : DType::F16;
}

void take_usual_types(const UsualTypes& types, ir::ModuleGraph& graph) {
  ModelShape shape{.layers = graph.facts.layers, .tied = true};
  for (const ir::Module& module : graph.modules) {
    if (const auto* info = std::get_if<ir::ExpertsInfo>(&module.info))
      shape.experts = info->experts;
    for (const ir::Param& param : module.params) {
      if (!param.sources.empty() && param.sources[0].tensor == "output.weight") shape.tied = false;
    }
  }
  for (ir::Module& module : graph.modules) {
    for (ir::Param& param : module.params) {
      if (param.sources.empty() || param.dtype == DType::F32 || param.dtype == DType::I32) {
        continue;  // these are in all files
      }
      param.dtype =
          usual_dtype(param.sources[0].tensor, param.cols, param.rows, module.layer, shape, &types);
    }
  }
}

}  // namespace ktx::arch

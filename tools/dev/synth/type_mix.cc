#include "tools/dev/synth/type_mix.h"

#include "tools/dev/synth/random_blocks.h"

namespace ktx::synth {
namespace {

constexpr TypeMix kMixes[] = {
#define KTX_TYPE_MIX(name, base, file_type) {name, DType::base, file_type},
#include "tools/dev/synth/type_mix.def"
#undef KTX_TYPE_MIX
};

bool contains(std::string_view text, std::string_view part) {
  return text.find(part) != text.npos;
}

// The first and last eighth of the layers, and every third between them.
bool gets_more_bits(int64_t layer, int64_t layers) {
  return layer < layers / 8 || layer >= 7 * layers / 8 || (layer - layers / 8) % 3 == 2;
}

// What is used where a row is no multiple of the type's block.
DType fallback(DType type) {
  switch (type) {
    case DType::Q4_K:
      return DType::Q5_0;
    case DType::Q5_K:
      return DType::Q5_1;
    case DType::Q6_K:
      return DType::Q8_0;
    case DType::TQ1_0:
    case DType::TQ2_0:
    case DType::Q1_0:
    case DType::Q2_0:
      return DType::Q4_0;
    default:
      return DType::IQ4_NL;
  }
}

bool few_bits(DType type) {
  const DTypeInfo& row = info(type);
  return row.block_elems > 1 && row.block_bytes * 8 < 7 * row.block_elems;
}

DType wanted_type(const TypeMix& mix, const MixFacts& facts, std::string_view name, int64_t layer) {
  const bool output = name == "output.weight" || (facts.tied && name == "token_embd.weight");
  if (output) return few_bits(mix.base) ? DType::Q6_K : mix.base;
  const bool q4_k_m = mix.name == "q4_k_m", iq4_xs = mix.name == "iq4_xs";
  if (!q4_k_m && !iq4_xs) return mix.base;
  const bool eight = facts.experts == 8;  // Mixtral's shape: attention is small beside the experts
  // (Where some layers have one and others values of their own, llama-quantize counts both alike.)
  if (contains(name, "attn_v.weight") || (facts.delta_nets && contains(name, "attn_qkv.weight"))) {
    if (eight) return DType::Q8_0;
    if (q4_k_m && gets_more_bits(layer, facts.layers)) return DType::Q6_K;
    if (iq4_xs && facts.heads_per_kv_head >= 4) return DType::Q5_K;
  } else if (contains(name, "attn_qkv.weight")) {
    if (q4_k_m) return DType::Q5_K;
  } else if (contains(name, "attn_k.weight")) {
    if (eight) return DType::Q8_0;
  } else if (contains(name, "ffn_down")) {
    if (q4_k_m && gets_more_bits(layer, facts.layers)) return DType::Q6_K;
    if (iq4_xs && layer < facts.layers / 8) return DType::Q5_K;
  } else if (contains(name, "attn_output.weight")) {
    if (eight) return DType::Q5_K;
  }
  return mix.base;
}

// One of all types that the row can have.
DType type_by_name(std::string_view name, uint64_t seed, int64_t row_elems) {
  std::vector<DType> types;
  for (const DTypeInfo& row : all_dtypes()) {
    if (row.dtype != DType::I32 && row_elems % row.block_elems == 0) types.push_back(row.dtype);
  }
  uint64_t bits = mix_bits(seed);
  for (const char c : name) bits = mix_bits(bits ^ static_cast<uint8_t>(c));
  return types[bits % types.size()];
}

}  // namespace

std::optional<TypeMix> find_type_mix(std::string_view name) {
  for (const TypeMix& mix : kMixes) {
    if (mix.name == name) return mix;
  }
  return std::nullopt;
}

std::vector<std::string> type_mix_names() {
  std::vector<std::string> names;
  for (const TypeMix& mix : kMixes) names.emplace_back(mix.name);
  return names;
}

DType mixed_type(const TypeMix& mix, const MixFacts& facts, std::string_view name, int64_t layer,
                 int64_t row_elems) {
  if (mix.name == "each") return type_by_name(name, facts.seed, row_elems);
  const DType type = wanted_type(mix, facts, name, layer);
  if (row_elems % info(type).block_elems == 0) return type;
  const DType smaller = fallback(type);
  return row_elems % info(smaller).block_elems == 0 ? smaller : DType::F16;
}

}  // namespace ktx::synth

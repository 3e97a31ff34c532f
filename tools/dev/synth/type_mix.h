// Chooses the type of each tensor of a quantised model, by the rules of llama-quantize.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lib/formats/dtype.h"

namespace ktx::synth {

struct TypeMix {
  std::string_view name;
  DType base = DType::Q4_K;
  uint32_t file_type = 0;  // general.file_type
};

std::optional<TypeMix> find_type_mix(std::string_view name);
std::vector<std::string> type_mix_names();

// What the choice depends on beside the tensor's name.
struct MixFacts {
  int64_t layers = 0;
  int64_t experts = 0;
  int64_t heads_per_kv_head = 1;
  bool tied = false;  // no output.weight
  uint64_t seed = 1;  // of `each`
  bool delta_nets = false;
};

// The type of a matrix called `name` ("blk.3.ffn_down.weight") in layer `layer`
// (-1 outside of layers) whose rows have `row_elems` weights.
DType mixed_type(const TypeMix& mix, const MixFacts& facts, std::string_view name, int64_t layer,
                 int64_t row_elems);

}  // namespace ktx::synth

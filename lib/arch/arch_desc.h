// An architecture as data: what the one builder (build_graph.cc) needs to know to
// make the module graph of a family.
//
//   const ArchDesc kLlama = {.family = "LlamaForCausalLM", .tree = kTree, ...};
//
// A family is a list of module rows in registration order, plus a few choices
// among variants that the builder knows. A new family in a known shape is a new
// data file and a row in arch_table.def; a new variant is a new enum value here
// and its case in the builder. docs/adding-an-architecture.md walks through one.
//
// Shorthands in the texts: "L." = "model.layers.{layer}.", "B." = "blk.{layer}.",
// "{P}" = the family's class prefix ("Qwen3Moe"), "K." and "T." = its two modules
// of classes (module_k, module_t), "a | b" = the first one that the GGUF has.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "lib/ir/module_graph.h"

namespace ktx::arch {

// When a row exists; decided per layer from the config.
enum class When {
  Always,
  Dense,          // layers with a dense feed-forward part
  Moe,            // layers with routed experts
  MoeWithShared,  // those, when the model has shared experts
  QueryLatent,    // MLA with q_lora_rank
  NoQueryLatent,
  RopePlain,  // by rope scaling type
  RopeLinear,
  RopeDynamic,
  RopeYarn,
  QkvBias,        // on q, k and v
  AttentionBias,  // config: attention_bias; on o and MLA's first projections
  MlpBias,
  CorrectionBias,  // routing with a correction bias
};

// A class, as torch registers it. `name` with a dot is a full dotted name, and
// `aliases` are all of its other spellings. Otherwise the class is "K.<name>" and
// also spelled "<name>", and "T.<name>" where in_transformers; aliases come after
// those. Lists are separated by spaces.
struct ClassRow {
  const char* name;
  const char* aliases = "";
  const char* bases = "";
  bool in_transformers = true;
};

// One parameter. Of MLA's kv_b either "weight" or both "k_b" and "v_b" exist.
struct ParamRow {
  const char* name = nullptr;
  const char* tensors = "";
  When when = When::Always;
};

// One module. A path with "{expert}" is a part of every expert: its parameter is
// then the name of the experts module's ("gate") and has no tensors of its own.
struct ModuleRow {
  ir::Role role;
  const char* path;
  const ClassRow* row_class;
  When when = When::Always;
  ParamRow params[3] = {};
};

enum class AttentionKind { Gqa, Mla };
enum class BiasKind {
  None,
  Qkv,     // q, k and v always (config: qkv_bias, true when absent)
  Config,  // as attention_bias says, o included
};
// Which layers have routed experts.
enum class LayerPattern {
  AllDense,
  AllMoe,
  FirstDense,  // first_k_dense_replace, moe_layer_freq
  SparseStep,  // decoder_sparse_step, mlp_only_layers
};
enum class SharedKind {
  None,
  Width,  // shared_expert_intermediate_size
  Count,  // n_shared_experts times the width of an expert, as one part
};
enum class RouterKind {
  None,
  SoftmaxNormalised,  // Mixtral
  SoftmaxByConfig,    // norm_topk_prob
  DeepseekV2,         // softmax, greedy or limited to the best groups; scaled or normalised
  DeepseekV3,         // sigmoid, correction bias, groups by their two best; normalised, scaled
};

// The value of a config key that config.json leaves out, as JSON text.
struct ConfigDefault {
  const char* key;
  const char* value;
};

struct ArchDesc {
  const char* family;                        // "Qwen3MoeForCausalLM"
  std::span<const char* const> model_types;  // of config.json
  const char* gguf_arch;
  const char* prefix;    // {P}
  const char* module_k;  // K: where rule files find the classes
  const char* module_t;  // T: transformers' own module, "" when K is that
  AttentionKind attention = AttentionKind::Gqa;
  BiasKind bias = BiasKind::None;
  bool mlp_bias = false;  // config: mlp_bias
  // Pairs (2i, 2i+1) are rotated, else (i, i + half). GGUF files of architecture
  // "llama" have their q and k rows permuted for the former.
  bool interleaved_rope = false;
  LayerPattern layers = LayerPattern::AllDense;
  const char* experts_key = "";       // config key of the number of experts
  const char* expert_width_key = "";  // and of the width of one
  SharedKind shared = SharedKind::None;
  RouterKind router = RouterKind::None;
  std::span<const ConfigDefault> defaults;
  std::span<const std::span<const ModuleRow>> tree;
};

// Every family of arch_table.def, in its order.
std::span<const ArchDesc* const> all_architectures();
const ArchDesc* find_family(std::string_view family);  // null: unknown
const ArchDesc* find_model_type(std::string_view model_type);

}  // namespace ktx::arch

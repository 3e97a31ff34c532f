// A family as data: all that ktx knows of the models of one architecture.
//
//   const Family kLlama = {.architecture = "LlamaForCausalLM", .rows = {kTree, kKeys}, ...};
//
// One description, four readers: lib/input merges its config keys with those of a GGUF,
// lib/arch makes the module graph of its tree, lib/rules knows its classes, and the
// synthetic models of tests are made of it. No other file names a family
// (tests/unit/families/family_names_test.cc).
//
// A family is lists of rows and a few choices among variants that the readers know. A
// new family in a known shape is a new data file and a row in family_table.def; a new
// variant is a new enum value here and its case in a reader.
// docs/adding-an-architecture.md walks through one.
//
// Shorthands in the texts: "L." = "model.layers.{layer}.", "B." = "blk.{layer}.",
// "{P}" = the family's class prefix ("Qwen3Moe"), "K." and "T." = its two modules
// of classes (module_k, module_t), "a | b" = the first one that the GGUF has. A tensor
// "B.attn_q." of a parameter "bias" is "B.attn_q.bias". Lists of words have spaces between them.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lib/families/config_key.h"
#include "lib/ir/module_graph.h"

namespace ktx::families {

// When a row exists; decided per layer from the config.
enum class When {
  Always,
  Dense,          // layers with a dense feed-forward part
  Moe,            // layers with routed experts
  MoeWithShared,  // those, when the model has shared experts
  MoeWithLatent,  // those, when routed experts have a width of their own
  LatentNorm,     // and the sum of these has a norm there
  OutputGate,     // layers with latent attention whose output has a gate
  OwnKeys,        // layers that do not read the keys and values of another one
  OwnValues,      // those whose values are not made of the key projection
  LayerInputs,    // the token embedding has a part for each layer
  QueryLatent,    // MLA with q_lora_rank
  NoQueryLatent,
  RopePlain,  // by rope scaling type
  RopeLinear,
  RopeDynamic,
  RopeYarn,
  QkvBias,        // on q, k and v
  AttentionBias,  // config: attention_bias; on o and MLA's first projections
  MlpBias,
  BehindFirst,      // layers but the first one
  MlpNorm,          // the feed-forward part does not read attention's norm (use_parallel_residual)
  SideMlpNorm,      // it has a norm of its own of what attention reads (use_parallel_residual)
  QkNorm,           // config: use_qk_norm, true when absent
  CorrectionBias,   // routing with a correction bias
  FullAttention,    // layers with attention over all positions, where others have a delta net or a
                    // state space
  DeltaNet,         // those others
  FullQuery,        // layers with such attention, without a query latent
  FullQueryLatent,  // and with one
  StateSpace,       // layers with a state space, instead of attention or beside it
  ShortConv,        // layers with a short convolution instead of attention
  ConvBias,         // its convolution has a bias
  StateSpaceNorm,   // its output has a norm
  Mixer,            // layers that mix tokens, where others are a feed-forward part alone
  FeedForward,      // those others
  Rotated,          // some layer is rotated
  Logits,           // models that do not score texts
  Scores,           // those that do
  RotatedQkNorm,    // as QkNorm, in layers that are rotated
  ScoreDense,       // and have a linear before their scores
  TextDense,        // linears behind the pooling of a text
  TextTypes,        // the model has an embedding of parts of a text
  Sinks,            // layers whose attention has sinks
  Indexer,          // layers of sparse attention that choose positions themselves
  Compressed,       // layers of compressed attention that have entries
  CompressedAll,    // those that read all of them
  ExpertTable,      // layers whose experts go by token id
  NoExpertTable,    // other layers with experts
  ImageBias,        // towers whose projector's linears have biases
  ImagePart,        // layers of towers that give a part of the rows
  GivenNorm,        // draft heads that norm the hidden states of their model
  Ngrams,           // layers with a table of n-grams
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

// One parameter. MLA's kv_b has either "weight" or both "k_b" and "v_b".
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
  ParamRow params[6] = {};
};

enum class AttentionKind { Gqa, Mla, Compressed };
// What a norm of queries and keys takes together (rows of role QNorm and KNorm).
// EachHead: heads, with weights of each one's own.
enum class QkNormKind { Head, Row, EachHead };
enum class BiasKind {
  None,
  Qkv,          // q, k and v always (config: qkv_bias, true when absent)
  Config,       // as attention_bias says, o included
  QkvByConfig,  // as attention_bias says, and on o as attention_out_bias says
};
// Which layers have routed experts.
enum class LayerPattern {
  AllDense,
  AllMoe,
  FirstDense,          // first_k_dense_replace, moe_layer_freq
  SparseStep,          // decoder_sparse_step, mlp_only_layers
  FirstDenseThenStep,  // first_k_dense_replace, decoder_sparse_step, moe_layer_end_index
  ByKind,              // those that layer_types calls "moe"
  BesideDense,         // every layer, beside its dense part, where the model has experts
                       // (enable_moe_block)
};
// Which layers have a sliding window, where the config has one (sliding_window) and no layer_types.
enum class WindowPattern {
  None,            // the family's windows are not known: a warning
  All,             // every layer
  Late,            // from max_window_layers on
  Period,          // all but every n-th (sliding_window_pattern, else window_period)
  PeriodFromFull,  // the same, beginning with one that has none
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
  RootOfSoftplus,     // with a correction bias, or a table of experts by token id (DeepSeek-V4)
  SparseMixer,        // the softmax of what is near the best, in a round an expert (Phi-3.5-MoE)
  SigmoidOfInput,     // of one expert, whose input is scaled (Llama 4)
  // By scoring_func, topk_method and groups of experts:
  GroupsByBest,     // weights are scaled or normalised; the best expert speaks for its group
  GroupsByTwoBest,  // correction bias, weights are normalised and scaled; the two best speak
};

// What distinguishes the GGUF of a family from others that are stored under the same architecture:
// a number, a flag or a text in its metadata, the name of its tokenizer's splitting, or a tensor.
struct GgufSign {
  const char* key = "";   // without the architecture in front; 0 is like an absent key
  const char* text = "";  // that the key has, instead of a number
  uint64_t min = 0;
  uint64_t max = 0;
  bool always_written = false;  // a file without the key lacks the sign
  const char* tensor = "";      // or: some layer has it ("exp_probs_b.bias")
  const char* pre = "";         // or: tokenizer.ggml.pre ("glm4")
};

// What a family that reads images says of them; more is in the config keys of its GGUF.
struct TowerForm {
  const char* name = "";    // the projector type of its GGUFs; empty: the family is no tower
  const char* models = "";  // words: the GGUF architectures of the language models that it is for
  const char* resize = "";
  bool keeps_shape =
      false;  // an image does; its longest side becomes image_size where it is longer, or it has
              // image_min_pixels to image_max_pixels where the family has such keys
  Unfold unfold = Unfold::None;  // squares of patches become one by a linear of all their elements
  bool causal = false;           // tokens of an image see those before them alone, as others do
  bool axes = false;             // and have positions by line and column (TokenAxis)
  bool one_frequency = false;    // patches are rotated by line and column alike
  // What a chat template writes for an image, and the texts around the image's tokens that take its
  // place; line_end stands between two lines of them.
  const char* mark = "";
  const char* before = "";
  const char* behind = "";
  const char* line_end = "";
};

// Which layers have experts, by which config keys, and how a token chooses some.
struct ExpertForm {
  LayerPattern layers = LayerPattern::AllDense;
  const char* count_key = "";  // of the number of experts
  const char* width_key = "";  // of the width of one
  SharedKind shared = SharedKind::None;
  RouterKind router = RouterKind::None;
};

struct FamilyRows {
  std::span<const std::span<const ModuleRow>> tree;
  std::span<const std::span<const ConfigKey>> keys = {};  // that a GGUF may hold as well
  std::span<const ConfigDefault> defaults = {};           // of a key the first one holds
  std::span<const ConfigAlias> aliases = {};
};

struct Family {
  const char* architecture;  // "Qwen3MoeForCausalLM"
  // Words of config.json; a GGUF without one gets the first.
  const char* model_types;
  const char* gguf_arch;
  const char* gguf_alias = "";  // what other converters call it
  // Any of them makes it this family. One family of an architecture may have none: what
  // shows no sign of the others is its.
  std::span<const GgufSign> gguf_signs = {};
  const char* prefix = "";    // {P}; "": `architecture` without "ForCausalLM"
  const char* module_k = "";  // K: where rule files find the classes; "": in transformers, in the
                              // module of the first model type
  const char* module_t = "";  // T: transformers' own module, "" when K is that
  AttentionKind attention = AttentionKind::Gqa;
  BiasKind bias = BiasKind::None;
  bool mlp_bias = false;  // config: mlp_bias
  QkNormKind qk_norm = QkNormKind::Head;
  // Pairs (2i, 2i+1) are rotated, else (i, i + half). GGUF files of architecture
  // "llama" have their q and k rows permuted for the former.
  bool interleaved_rope = false;
  // The first part of a head may be all that is rotated (rotary_dim, partial_rotary_factor).
  bool partial_rotary = false;
  WindowPattern windows = WindowPattern::None;
  int32_t window_period = 0;
  // In a config that has one number of key heads, layers with a window have so many times as many.
  int32_t window_kv_factor = 1;
  bool gated_attention = false;  // q_proj has a gate behind each query head
  // What a gate with a linear of its own goes through, and whether it has one number for each head
  // (not where the config's "gating" is "per-element").
  HeadGate attention_gate = HeadGate::Sigmoid;
  bool head_gates = false;
  float alibi = 0;                   // of attention's scores (AttentionAttrs); 0: none
  bool whole_scale = false;          // these are divided by head_dim, else by its root
  bool router_reads_stream = false;  // before attention, without a norm
  float latent_norm_eps = 0;         // of latent attention's norms, in the models' code; 0: of all
  bool interleaved_index = false;    // pairs that an indexer of sparse attention rotates
  bool one_part = false;             // a layer mixes tokens or is a feed-forward part
  bool beside_attention = false;     // each layer has a state space beside its attention
  bool tiled_value_heads = false;    // of delta nets: value head h goes with key head h % key heads
  // Yarn's range of frequencies is rounded to whole indices where the config does not say
  // (rope_scaling.truncate).
  bool yarn_truncate = true;
  // GGUFs do not say by what queries are scaled: those with so many layers by the square root of
  // hidden_size / num_attention_heads, others of head_dim.
  int32_t wide_scale_layers = 0;
  int32_t unrotated_period = 0;              // every n-th layer is not rotated
  bool chunked_windows = false;              // a window is a chunk of the context (Llama 4)
  bool rotates_windows = false;              // in models with windows no other layer is rotated
  bool scaled_embedding = false;             // by the square root of its width
  Activation activation = Activation::Silu;  // hidden_act may say another one than Silu
  bool layer_norms = false;  // norms are layer norms (layer_norm_eps), else by rms (rms_norm_eps)
  // Feed-forward parts are act(up(x)); hidden_act may say another one than `unit`.
  bool gateless = false;
  UnitFunction unit = UnitFunction::GeluErf;
  bool encoder = false;  // tokens see those behind them, and there are no logits
  ExpertForm experts = {};
  const char* dense_width_key = "intermediate_size";  // of dense feed-forward parts
  FamilyRows rows;
  // Classes that rule files name and no row of the tree has, separated by spaces.
  const char* more_classes = "";
  // Layers for multi-token prediction at the end of its GGUFs are as prediction_rows.h has them.
  bool predicts = false;
  // Not a model: a head that drafts tokens for one, whose hidden states it reads
  // (lib/arch/draft_head.h). What it is called; empty: a model.
  const char* draft_head = "";
  bool is_draft_head() const { return draft_head[0] != '\0'; }
  // Not a model either: it reads images for one (lib/input/tower_source.h).
  TowerForm tower = {};
  bool is_tower() const { return tower.name[0] != '\0'; }
  bool is_model() const { return !is_draft_head() && !is_tower(); }

  bool windows_by_period() const {
    return windows == WindowPattern::Period || windows == WindowPattern::PeriodFromFull;
  }
  bool has_window(int64_t layer, int64_t period) const {
    const int64_t full = windows == WindowPattern::PeriodFromFull ? 0 : period - 1;
    return period > 0 && layer % period != full;
  }

  bool stored_as(std::string_view architecture) const {  // of a GGUF
    return architecture == gguf_arch || (gguf_alias[0] != '\0' && architecture == gguf_alias);
  }
  std::string_view first_model_type() const;
  std::string class_prefix() const;                // {P}
  std::string class_module() const;                // K
  const ModuleRow* find_row(ir::Role role) const;  // the first of the tree; null: none
  bool has_role(ir::Role role) const { return find_row(role) != nullptr; }
  const ConfigKey* find_gguf_key(std::string_view gguf_key) const;  // null: none of the keys
  bool has_gguf_key(std::string_view key) const { return find_gguf_key(key) != nullptr; }
  const ConfigKey* find_config_key(std::string_view key) const;  // null: none of the keys
  bool has_config_key(std::string_view key) const { return find_config_key(key) != nullptr; }
  const char* find_default(std::string_view key) const;  // JSON text; null: no default
};

// Stretches of rows, one behind the other.
template <class Row, size_t... N>
constexpr std::array<Row, (N + ...)> join(const Row (&... stretches)[N]) {
  std::array<Row, (N + ...)> all{};
  auto end = all.begin();
  ((end = std::copy(stretches, stretches + N, end)), ...);
  return all;
}

// Every family of family_table.def, in its order.
std::span<const Family* const> all_families();
const Family* find_architecture(std::string_view architecture);  // null: unknown
const Family* find_model_type(std::string_view model_type);
const Family* find_draft_head(std::string_view gguf_arch);         // null: it is none
std::vector<const Family*> towers_of(std::string_view gguf_arch);  // those whose GGUFs are of it
// The family of a config: by its model_type, else by the first known one of its architectures.
const Family* find_family(std::string_view model_type, std::span<const std::string> architectures);

}  // namespace ktx::families

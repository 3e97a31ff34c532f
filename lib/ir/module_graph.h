// The module graph: the tree of the Hugging Face model, as its users know it.
//
// Rules match on this level, by path and by class. Architectures (lib/arch)
// build it, bound to the GGUF's tensors; passes add decisions; lower_to_steps
// turns it into the step graph. Its text form (docs/ir.md) round-trips exactly:
//
//   module model.layers.1.self_attn.q_proj : torch.nn.modules.linear.Linear
//     role q_proj layer 1
//     linear in 256 out 384
//     param weight Q4_K [256, 384] = blk.1.attn_q_b.weight
//     decision device cpu rule 3
//
// Ids are dense and in depth-first order, parents before children, children in
// registration order: the order in which rules visit modules. A path is its
// parent's path, a dot and one more name.
//
// The routed experts of a layer are one module (role Experts) that owns their
// stacked weights. The modules below it that rule files may name
// ("...experts.17.up_proj") are not stored: see ExpertPart.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "lib/formats/dtype.h"
#include "lib/formats/tensor_slice.h"
#include "lib/ops/step_attrs.h"
#include "lib/support/diag.h"
#include "lib/support/result.h"

namespace ktx::ir {

enum class Kind : uint8_t {
  Container,
  Embedding,
  Norm,
  Attention,
  Linear,
  Rotary,
  Mlp,
  Activation,
  Moe,
  Router,
  Experts,
  Expert
};
std::string_view name(Kind kind);  // lower case: "linear"
std::optional<Kind> kind_from_name(std::string_view name);

enum class Role : uint8_t {
#define KTX_ROLE(id, name, kind, sentence) id,
#include "lib/ir/roles.def"
#undef KTX_ROLE
};
std::string_view name(Role role);
std::optional<Role> role_from_name(std::string_view name);
Kind kind_of(Role role);

// A parameter of a module: `matrices` matrices of rows x cols, row-major, cols
// innermost. Vectors are one row. Several sources are joined by rows, in order.
struct Param {
  // "weight" or "transposed" (of a linear whose matrix is that), "bias", "gate", "up", "down",
  // "gate_bias", "up_bias", "down_bias", "k_b", "v_b", "correction_bias", "sinks"; "conv", "decay",
  // "dt_bias" of a delta net, and with "conv_bias", "skip" of a state-space layer; "conv" of a
  // short convolution; "position_bias" of a compressor, and "pool_gate" of an indexer's, the matrix
  // that scores come from; "fn", "scale" and "base" of hyper-connections; "output_scale" of AltUp,
  // "streams" of its projections, a matrix for each stream; "conv" of n-grams; "table" of a router,
  // experts by token id (I32); "factors" of a router, "gate_factors" and "up_factors" of experts:
  // one for each expert, of its down, gate and up products; "second_frame" of a patch embedding
  std::string name;
  std::vector<TensorSlice> sources;
  DType dtype = DType::F32;
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t matrices = 1;
};

// Attributes, one struct per kind that has any. Dimensions in elements.
struct LinearInfo {
  int64_t in = 0;
  int64_t out = 0;
  float factor = 1;  // of the product; a bias is added behind it
};
struct EmbeddingInfo {
  int64_t vocab = 0;
  int64_t hidden = 0;
  float scale = 1;  // of what is looked up (Gemma)
};
struct NormInfo {
  int64_t width = 0;
  float eps = 0;
  float factor = 1;         // of the normed elements
  bool layer_norm = false;  // else by the root mean square
  int32_t groups = 1;       // norms side by side, each of `width` with weights of its own
};
// inv_freq: rotary_dim / 2 frequencies in F32, all scaling (llama3, yarn, linear)
// worked in; mscale multiplies cos and sin.
struct RotaryInfo {
  int32_t rotary_dim = 0;
  bool interleaved = false;
  float mscale = 1;
  std::vector<float> inv_freq;
  int64_t context = 0;  // that the frequencies are for (longrope); 0: any
  // Pairs that turn by line and by column where tokens have such positions (RopeGridAttrs).
  int32_t lines = 0;
  int32_t columns = 0;
  bool woven = false;
  bool has_axes() const { return lines > 0 || columns > 0; }
};
struct AttentionInfo {
  int32_t heads = 0;
  int32_t kv_heads = 0;
  int32_t head_dim = 0;
  float scale = 0;
  int32_t window = 0;  // as in AttentionAttrs
  int32_t chunked = 0;
  float softcap = 0;
  bool rotated = true;  // queries and keys by their position
  int32_t keys_of_layer =
      -1;  // a layer before this one whose keys and values it reads; -1: its own
  bool keys_as_values = false;  // values are made of the key projection
  PositionScaleAttrs grown;     // of queries; growth 0: not
  bool grown_by_count = false;  // by the tokens up to it (count_scale), else by the position
  // q_proj has a gate behind each head's query; the output times its sigmoid goes to o_proj.
  bool gated = false;
  // What a gate with a linear of its own, for each element or each head, goes through.
  int32_t gate = 0;         // enum HeadGate
  bool whole_text = false;  // a token sees those behind it, too (encoders)
  // Block attention: so many blocks of index_block positions, which an indexer with a head of
  // index_dim for each KV head chooses; the last index_local ones in any case. With index_heads it
  // has so many, which choose whole blocks for all KV heads together, by one key that is made of
  // each; the positions behind the last whole block are read in any case.
  int32_t top_k = 0;  // 0: all positions
  int32_t index_heads = 0;
  int32_t index_dim = 0;
  int32_t index_block = 0;
  int32_t index_local = 0;
  int32_t value_dim = 0;  // of a value head; 0: head_dim
  float alibi = 0;        // as in AttentionAttrs
  float qkv_limit = 0;    // of queries, keys and values, before their rotation; 0: none
  int32_t value_width() const { return value_dim > 0 ? value_dim : head_dim; }
};
// As in DeltaRuleAttrs and CausalConvAttrs.
struct DeltaNetInfo {
  int32_t key_heads = 0;
  int32_t value_heads = 0;
  int32_t head_dim = 0;
  int32_t taps = 0;
  bool tiled = false;
  // Kimi delta attention: queries, keys and values have projections and convolutions of their own,
  // each channel decays by itself, and the output's gate is a sigmoid.
  bool by_channel = false;
  float lower_bound = 0;      // of decays; 0: none
  bool sigmoid_gate = false;  // as by_channel has it
  int64_t channels() const { return (2 * int64_t{key_heads} + value_heads) * head_dim; }
  int64_t width() const { return int64_t{value_heads} * head_dim; }  // of the output
};
// As in StateSpaceAttrs. A row of in_proj's output is [gate | values | input | output | steps].
struct StateSpaceInfo {
  int32_t heads = 0;
  int32_t head_dim = 0;
  int32_t groups = 0;
  int32_t state_dim = 0;
  int32_t taps = 0;
  bool norm_first = false;  // the output is normed before its gate, else behind it
  float step_min = 0;
  float step_max = 0;  // 0: none
  int64_t width() const { return int64_t{heads} * head_dim; }
  int64_t channels() const { return width() + 2 * int64_t{groups} * state_dim; }
  int64_t projected() const { return width() + channels() + heads; }
};
// As in SelectiveScanAttrs. A row of in_proj's output is [values | gate].
struct SelectiveScanInfo {
  int32_t channels = 0;
  int32_t state_dim = 0;
  int32_t step_rank = 0;
  int32_t taps = 0;
  int64_t params() const { return step_rank + int64_t{2} * state_dim; }
};
// A row of in_proj's output is [gate before | gate behind | input] of the convolution.
struct ShortConvInfo {
  int64_t width = 0;
  int32_t taps = 0;
};
// q heads are [nope | rope] wide; the cache holds [latent | rope] per token.
struct MlaInfo {
  int32_t heads = 0;
  int32_t q_lora_rank = 0;  // 0: no query latent
  int32_t kv_lora_rank = 0;
  int32_t nope_dim = 0;
  int32_t rope_dim = 0;
  int32_t value_dim = 0;
  float scale = 0;           // softmax scale with yarn's mscale worked in
  PositionScaleAttrs grown;  // of queries; growth 0: not
  // Sparse attention: so many positions, which an indexer with heads of index_dim chooses.
  int32_t top_k = 0;  // 0: all positions
  int32_t index_heads = 0;
  int32_t index_dim = 0;  // the first rope_dim of them are rotated
  bool index_interleaved = false;
  int32_t positions_of_layer = -1;  // a layer before this one whose choice it takes; -1: its own
  bool rotated = true;              // the rotary parts, by their position
  // The choice is one of pools of so many positions each, whose keys are made as CompressAttrs has
  // it, and top_k are pools; the positions behind the last whole pool are taken in any case.
  int32_t index_pool = 0;  // 0: of single positions
};
// Attention of heads that share one key, which is the value as well, over the last `window`
// positions and, where `every` is not 0, over entries of `every` positions each (CompressAttrs has
// the formula). The last rope_dim elements of heads and key are rotated, and those of the output
// back. The heads' outputs go in `groups` through an o_a_proj to latents of group_rank each.
struct CompressedAttentionInfo {
  int32_t heads = 0;
  int32_t head_dim = 0;
  int32_t q_lora_rank = 0;
  int32_t rope_dim = 0;
  float scale = 0;
  int32_t window = 0;
  int32_t groups = 0;
  int32_t group_rank = 0;
  int32_t every = 0;  // 0: no entries
  // So many entries, which an indexer with entries of index_dim chooses; these overlap, and so do
  // those of attention. 0: all.
  int32_t top_k = 0;
  int32_t index_heads = 0;
  int32_t index_dim = 0;
};
// For a compressor, or an indexer that has one; fields as in CompressAttrs.
struct CompressorInfo {
  int32_t dim = 0;
  int32_t every = 0;
  bool overlapped = false;
  int64_t channels() const { return int64_t{dim} * (overlapped ? 2 : 1); }
};
// As in StreamWeightsAttrs. With a rank there are no such weights: n the normed streams, a part
// reads the mean of sigmoid(up . silu(down . n / streams)) * n over the streams, and gives
// 2 * sigmoid(give . n / streams) times its output to each (Qwen4-Exp).
struct StreamsInfo {
  int32_t streams = 0;
  int32_t iterations = 0;  // 0: a sum alone is made
  float eps = 0;
  int64_t hidden = 0;  // of a stream
  bool mean = false;   // the sum has equal weights
  int32_t rank = 0;    // 0: the sum has weights, not gates
  StreamWeightsAttrs attrs() const { return {streams, iterations, eps}; }
};
// What n-grams add to each stream s (Qwen4-Exp), of the rows e of their table:
//
//   g = k[s] . norm(x[s]) / sqrt(hidden)      k = norms of a linear of e, one for each stream
//   v[s] = sigmoid(root(g)) * value           root: UnitFunction::SignedRoot; value: a linear of e
//   x[s] += v[s] + silu(conv(norm(v[s])))     over every dilation-th token of the last ones
struct NgramPartInfo {
  int32_t streams = 0;
  int64_t hidden = 0;  // of a stream
  int32_t taps = 0;
  int32_t dilation = 1;
};
// As in EmbedNgramsAttrs.
struct NgramsInfo {
  int32_t size = 0;
  int32_t heads = 0;
  int32_t end = 0;
  std::vector<uint64_t> multipliers, sizes, offsets;
  int64_t rows() const { return int64_t{heads} * (size - 1); }
};
// As in PoolRowsAttrs.
struct PoolInfo {
  int32_t side = 0;
  int32_t unfold = 0;
};
// As in AltUpWeightsAttrs.
struct AltUpInfo {
  int32_t streams = 0;
  int32_t active = 0;
  int64_t hidden = 0;  // of a stream
};
// As in AttendStreamsAttrs. A stream ends before each `block` layers, the first ones among them:
// the next one begins with what their attention gives.
struct SourcesInfo {
  int32_t block = 0;
  float eps = 0;
  int64_t hidden = 0;  // of a stream
};
struct MlpInfo {
  int64_t hidden = 0;
  int64_t width = 0;
  GluAttrs glu;
  int32_t unit = -1;   // enum UnitFunction, of a part without a gate, or of the gate before glu
  float sparsity = 0;  // the share of gates that are left out (GaussianTopKAttrs); 0: none
  float limit = 0, rise = 0, fall = 0, slope = 0;  // of the unit, as in ActivateAttrs
  ActivateAttrs activate() const { return {unit, limit, rise, fall, slope}; }
};
struct RouterInfo {
  RouterAttrs attrs;
  bool scales_input = false;  // of the one chosen expert, instead of its output
  bool reads_stream = false;  // before the layer's attention, without a norm
};
struct ExpertsInfo {
  int32_t experts = 0;
  int32_t top_k = 0;
  int64_t hidden = 0;
  int64_t width = 0;  // of one expert
  GluAttrs glu;
};
// For a decoder layer with such a factor; other layers have no attributes.
struct LayerInfo {
  float output_scale = 1;  // of the residual stream behind the layer
};
using ModuleInfo =
    std::variant<std::monostate, LinearInfo, EmbeddingInfo, NormInfo, RotaryInfo, AttentionInfo,
                 MlaInfo, MlpInfo, RouterInfo, ExpertsInfo, LayerInfo, DeltaNetInfo, StateSpaceInfo,
                 ShortConvInfo, CompressedAttentionInfo, CompressorInfo, StreamsInfo, AltUpInfo,
                 SelectiveScanInfo, SourcesInfo, PoolInfo, NgramPartInfo, NgramsInfo>;

// Routed experts of a stack that are on another device than the rest of it.
struct ExpertSet {
  std::string device;            // "cuda:0"; from a rule also "auto", the device of the attention
  std::vector<int32_t> experts;  // rising; empty: `count` of them, which place-devices chooses
  int32_t count = 0;             // of experts
  float use = 0;                 // share of the layer's activations that they are expected to get
  // Guests: their weights are on the stack's device as well, and these are the first of them in
  // `count` slots of a GPU, which experts enter and leave by use. Until place-devices a count of 0
  // is as many slots as the GPU has room for.
  bool guests = false;
};

// What rules and passes have decided. Empty strings: not decided yet.
struct Decision {
  std::string device;  // "cpu", "cuda:0"; until place-devices as rules have it: "auto", "cuda:0-3"
  std::string op;      // canonical op name of the rule language, or ""
  std::string layout;  // layout name that a rule requests, or ""
  int32_t rule = -1;   // index in the rule list, -1: the compiler's own choice
  bool lossy_allowed = false;
  std::vector<ExpertSet> expert_sets = {};  // of routed experts; the others are on `device`
  int32_t deferred = 0;  // of a token's routed experts on the CPU, those added a layer later
  // GPUs that compute the module together, each its part or all of it; the first is `device`.
  std::vector<std::string> team = {};
};

using ModuleId = int32_t;

struct Module {
  std::string path;                  // "model.layers.3.mlp.experts"; the root's is empty
  std::string class_name;            // full dotted name, as rule files write it
  std::vector<std::string> aliases;  // other spellings of the same class
  std::vector<std::string> bases;    // every accepted spelling of its base classes
  Role role = Role::Root;
  int32_t layer = -1;  // decoder layer it belongs to, -1 outside
  ModuleId parent = -1;
  std::vector<ModuleId> children;
  std::vector<Param> params;
  ModuleInfo info;
  Decision decision;

  const Param* param(std::string_view name) const;
};

// One of the modules that every routed expert consists of, in registration order:
// first the expert itself (suffix ""), then its parts.
struct ExpertPart {
  std::string suffix;  // "up_proj": below "<path of the experts module>.<expert>"
  std::string class_name;
  std::vector<std::string> aliases;
  std::vector<std::string> bases;
  Role role = Role::Expert;
  // The experts module's parameter whose matrix <expert> is this part's weight;
  // "" when the part owns none.
  std::string param;
};

// A fact about the whole model that later stages need.
struct ModelFacts {
  std::string family;        // "Qwen3MoeForCausalLM"
  std::string architecture;  // GGUF architecture, "qwen3moe"
  std::string name;          // general.name, may be empty
  int64_t vocab = 0;
  int64_t hidden = 0;
  int32_t layers = 0;
  int64_t context_length = 0;
  float logit_softcap = 0;   // 0: none
  float residual_scale = 1;  // of what attention and the feed-forward part add to the stream
  float logit_scale = 1;
  // How the states of a text's tokens become one (PlanFacts::pooling); empty: not said.
  std::string pooling;
  int32_t scores = 0;    // of a text, instead of logits; 0: none
  bool encoder = false;  // a text is one pass, and has no logits
  // For a draft head: the number of tokens that have logits (0: all), and whether its layer adds to
  // the normed stream, not to the stream itself.
  int32_t draft_vocab = 0;
  bool normed_stream = false;
  int64_t logits() const { return draft_vocab > 0 ? draft_vocab : vocab; }
};

struct ModuleGraph {
  ModelFacts facts;
  std::vector<Module> modules;  // index = ModuleId; 0 is the root
  // Tensors that belong to no module, with the reason ("multi-token prediction
  // head", "rotary factors, worked into inv_freq").
  struct ExtraTensor {
    std::string tensor;
    std::string reason;
  };
  std::vector<ExtraTensor> extra_tensors;
  std::vector<ExpertPart> expert_parts;  // the same in every layer; empty: no experts

  const Module& root() const { return modules.front(); }
  const Module* find(std::string_view path) const;  // null: no such module
  // The first child with this role, null when there is none.
  const Module* child(const Module& parent, Role role) const;
};

// A module below an experts module, made on demand.
struct ExpertModule {
  std::string path;  // "model.layers.3.mlp.experts.17.up_proj"
  const ExpertPart* part = nullptr;
  int32_t expert = 0;
};

// Calls `visit` for each module below `experts` (a module of role Experts) in
// registration order: expert 0, its parts, expert 1 and so on. Stops when `visit`
// returns false.
void for_each_expert_module(const ModuleGraph& graph, const Module& experts,
                            const std::function<bool(const ExpertModule&)>& visit);
int64_t expert_module_count(const ModuleGraph& graph, const Module& experts);

// Whether a rule's class name means this module: its class, one of its aliases or
// bases, or a base of every module ("torch.nn.Module"). Names compare in full.
bool has_class(const Module& module, std::string_view class_name);
bool has_class(const ExpertPart& part, std::string_view class_name);

// The text form; `file` is for messages. parse is safe for untrusted text and
// checks its syntax and tree, but not what verify checks.
std::string print(const ModuleGraph& graph);
Result<ModuleGraph> parse(std::string_view text, const std::string& file);

// Reports each violation of what this header promises: ids and order, unique
// paths, attributes and parameter shapes that fit the role, blocks that fit rows.
void verify(const ModuleGraph& graph, DiagSink& sink);

}  // namespace ktx::ir

// Reads the sizes and constants of a model from its config, checks them, and stores them in one
// form for all families.
//
//   auto params = read_hyper_params(arch, config, diags);   // nothing: see diags
//   params->shape(3).heads;
//
// Values that may differ by layer are in the layer's shape. The family's data file says what a
// missing key means. Every size is checked against a limit and every division for a remainder, so
// the builder can compute with them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lib/families/family.h"
#include "lib/input/hf_config.h"
#include "lib/ir/module_graph.h"
#include "lib/ops/step_attrs.h"
#include "lib/support/diag.h"

namespace ktx::arch {

enum class RopeType { Plain, Linear, Dynamic, Yarn, Llama3, Proportional, LongRope };

struct RopeParams {
  RopeType type = RopeType::Plain;
  double theta = 10000;
  double factor = 1;
  double original_context = 0;
  double rotated = 1;  // proportional: the share of the pairs that turn, the first ones
  // llama3; without them the factors come from a tensor
  std::optional<double> low_freq_factor, high_freq_factor;
  // yarn
  double beta_fast = 32;
  double beta_slow = 1;
  bool truncate = true;
  std::optional<double> attention_factor, mscale, mscale_all_dim;
  // longrope: divisors of the frequencies in contexts up to the original one, and above; empty
  // where tensors hold them
  std::vector<double> short_factors, long_factors;
  std::optional<double> short_mscale, long_mscale;  // of cos and sin, else attention_factor
};

// What may differ from layer to layer.
struct LayerShape {
  int32_t heads = 0;
  int32_t kv_heads = 0;  // grouped-query attention
  int32_t head_dim = 0;
  int64_t mlp_width = 0;        // of a dense feed-forward part
  bool experts = false;         // routed experts instead of that
  int32_t window = 0;           // of attention; 0: none
  bool rotated = true;          // queries and keys
  int32_t keys_of_layer = -1;   // whose keys and values it reads; -1: its own
  bool keys_as_values = false;  // values are made of the key projection
  bool delta_net = false;       // instead of attention
  bool attention = true;        // false: state space or nothing in its place
  bool state_space = false;     // of either kind
  bool short_conv = false;
  bool feed_forward = true;         // dense part or experts
  bool sinks = false;               // of attention
  bool indexer = false;             // of sparse attention
  int32_t every = 0;                // of compressed attention: positions of an entry; 0: none
  bool expert_table = false;        // experts by token id
  bool ngrams = false;              // a table of n-grams before it
  bool image_part = false;          // of a tower: it gives a part of an image's rows
  float glu_limit = 0;              // of its own; 0: the model's
  float shared_limit = 0;           // the same of dense parts and of shared experts
  float sparsity = 0;               // share of gates of its dense part that are left out
  ActivateAttrs xielu = {};         // of its dense part, where its unit is that
  int32_t positions_of_layer = -1;  // that a layer without one takes; -1: it has one
};

struct HyperParams {
  int32_t layers = 0;
  int32_t mtp_layers = 0;  // prediction layers after those
  int64_t hidden = 0;
  int64_t vocab = 0;
  int64_t context = 0;
  float norm_eps = 0;
  float post_norm_eps = 0;    // of norms behind a part; 0: norm_eps
  float mixer_norm_eps = 0;   // of norms within selective scans; 0: norm_eps
  float latent_norm_eps = 0;  // of latent attention's; 0: norm_eps
  bool interleaved_rope = false;
  families::QkNormKind qk_norms = families::QkNormKind::Head;
  bool parallel_parts = false;  // attention and feed-forward part read the same norm
  RopeParams rope;
  int32_t rotary_dim = 0;  // elements of the rotated part of a head
  bool qk_norm = true;
  RopeParams local_rope;  // of layers with a window, where the family has that
  int32_t local_rotary_dim = 0;
  double attention_scale = 0;  // 0: 1 / sqrt(head_dim)
  float attention_softcap = 0, logit_softcap = 0;
  float attention_alibi = 0;  // AttentionAttrs
  float qkv_limit = 0;        // AttentionInfo
  bool whole_scale = false;   // scores are divided by head_dim, else by its root
  float embedding_scale = 1, residual_scale = 1, logit_scale = 1;
  PositionScaleAttrs grown_queries;
  PositionScaleAttrs grown_unrotated;  // of layers that are not rotated, by count_scale
  bool windows_left_out = false;       // the config has a window, the family no rows for it
  bool chunked_windows = false;
  bool router_scales_input = false;
  bool router_reads_stream = false;
  GluAttrs glu;
  int32_t unit =
      -1;  // enum UnitFunction, of feed-forward parts without a gate, or of the gate; -1: glu
  bool layer_norms = false;
  int32_t scores = 0;  // of a text, instead of logits
  bool score_dense = false;
  int64_t text_dense = 0;  // width between the linears behind a text's pooling; 0: none
  std::string pooling;
  int64_t text_types = 0;  // rows of the embedding of parts of a text
  bool encoder = false;
  bool qkv_bias = false;
  bool attention_bias = false;
  bool mlp_bias = false;
  std::optional<bool> tied;  // embedding and head are one tensor

  std::vector<LayerShape> shapes;  // one for each layer, and one more of a prediction layer
  int32_t q_lora_rank = 0;         // latent attention; 0: no query latent
  int32_t kv_lora_rank = 0;
  int32_t nope_dim = 0;
  int32_t rope_dim = 0;
  int32_t value_dim = 0;

  int32_t index_heads = 0;  // of sparse attention's indexers; 0: attention reads all positions
  int32_t index_dim = 0;
  int32_t index_top_k = 0;  // positions, or blocks where they have a size
  int32_t index_block = 0;  // positions of a block
  int32_t index_local = 0;  // blocks
  int32_t index_pool = 0;   // positions that an indexer chooses together; 0: one
  bool interleaved_index = false;

  int32_t output_groups = 0;  // of compressed attention's output; 0: it is none
  int32_t output_rank = 0;
  int32_t streams = 0;  // of hyper-connections, or of AltUp; 0: none
  int32_t stream_iterations = 0;
  float stream_eps = 0;
  bool mean_of_streams = false;  // is what the head reads
  int32_t stream_rank = 0;       // of their gates; 0: they have weights
  int32_t active_stream = 0;     // of AltUp
  int32_t source_block = 0;      // layers between streams that later layers read; 0: none
  int32_t laurel_rank = 0;

  ir::NgramsInfo ngrams;                    // of a layer that has them
  int64_t ngram_rows = 0, ngram_width = 0;  // of their table
  int32_t ngram_taps = 0;

  int32_t layer_input_width = 0;  // of each layer's part of the token embedding; 0: none
  bool gated_attention = false;
  int32_t gate = 0;         // enum HeadGate, of a gate that has a linear of its own
  bool head_gates = false;  // which has a number for each head
  bool output_gate = true;  // of latent attention, where the family has one
  int32_t value_head = 0;   // of grouped-query attention; 0: head_dim
  float value_scale = 1;
  ir::DeltaNetInfo delta_net;      // of layers that have one
  ir::StateSpaceInfo state_space;  // likewise
  ir::SelectiveScanInfo selective_scan;
  int32_t short_conv_taps = 0;
  bool conv_bias = false;
  bool state_space_norm = true;

  // Draft heads: the width of all hidden states of the model that come with a token; 0: no head.
  int64_t given_width = 0;
  bool given_norm = false;     // they are normed together
  bool normed_stream = false;  // the layer adds to what hidden_norm gives
  int64_t draft_vocab = 0;     // logits, where they are not of all tokens

  // Towers: the pixels of each side of an image (at most, where it keeps its shape) and of its
  // patches, the patches of each side of a square that becomes one row, and the width of that row.
  int32_t image_size = 0, patch_size = 0, image_pool = 0;
  int64_t image_width = 0;
  bool image_keeps_shape = false;  // sides are then multiples of a square's
  int64_t image_most_pixels = 0;   // then; 0: image_size says it
  Unfold image_unfold = Unfold::None;
  bool image_bias = false;  // of the projector's linears
  bool grid_rope = false;   // patches are rotated by line and column
  int32_t grid_side = 0;    // of a table of learned positions that images are stretched over
  int64_t image_square() const { return hidden * image_pool * image_pool; }  // all of its elements
  int64_t square_side() const { return int64_t{patch_size} * image_pool; }   // in pixels
  int64_t patch_columns() const {  // of an image that is not measured by its pixels, at most
    if (!image_keeps_shape) return image_size / patch_size;
    return (image_size + square_side() - 1) / square_side() * image_pool;
  }
  int64_t patches() const {  // at most
    if (image_most_pixels == 0) return patch_columns() * patch_columns();
    return image_most_pixels / (square_side() * square_side()) * image_pool * image_pool;
  }

  // The pairs of a head that turn by line and by column, in a language model beside a tower.
  int32_t rope_lines = 0, rope_columns = 0;

  int32_t experts = 0;  // 0: none
  int64_t expert_width = 0;
  int64_t expert_latent = 0;  // width that routed experts read and write; 0: hidden
  bool latent_norm = true;    // of their sum, where the family has one
  int64_t expert_io() const { return expert_latent > 0 ? expert_latent : hidden; }
  int64_t shared_width = 0;  // of all shared experts together; 0: none
  RouterAttrs router;
  bool correction_bias = false;

  // The shape of a layer; for modules outside the layers (-1), that of the first layer.
  const LayerShape& shape(int32_t layer) const { return shapes[layer < 0 ? 0 : layer]; }
};

std::optional<HyperParams> read_hyper_params(const families::Family& family,
                                             const input::HfConfig& config, DiagSink& diags);

}  // namespace ktx::arch

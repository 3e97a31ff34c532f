// A scalar interpreter of the module graph: the oracle for whole models.
//
//   Interpreter model = KTX_TRY(Interpreter::make(graph, gguf));
//   for (int32_t token : prompt) logits = model.next(token);
//
// Written to be believed, not to be fast: weights are dequantised to F32, one token at a time, one
// plain loop per formula, sums in double. It knows nothing of step graphs, layouts or kernels, so
// that it can judge them.
//
// Needs a verified graph (ir::verify) bound to this GGUF. Weights in F32 are kept until there are
// kMaxKeptFloats of them, then those of a layer at a time, as it needs them: a token of a large
// model dequantises the weights that it reads. Not thread-safe.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "lib/input/gguf.h"
#include "lib/ir/module_graph.h"
#include "lib/support/result.h"
#include "lib/support/thread_pool.h"

namespace ktx::reference {

class Interpreter {
 public:
  // Fails when a tensor is missing or smaller than its parameter. `graph`, `gguf` and `pool`, whose
  // threads share the rows of large products (null: none do), must outlive the interpreter.
  static Result<Interpreter> make(const ir::ModuleGraph& graph, const input::GgufFile& gguf,
                                  ThreadPool* pool = nullptr);

  // Takes one more token of the sequence; the logits of what follows it.
  // `token` must be inside the vocabulary. `hidden`: of a graph of prediction layers, what
  // hidden() of the model gave behind the token before.
  std::vector<float> next(int32_t token, std::span<const float> hidden = {});
  // What the final norm gave for the last token.
  const std::vector<float>& hidden() const { return hidden_; }
  // For the last token: what each layer read, then what the last one gave.
  const std::vector<std::vector<float>>& streams() const { return streams_; }
  // Forgets the sequence.
  void reset();
  int64_t position() const { return position_; }

  static constexpr int64_t kMaxKeptFloats = int64_t{1} << 28;

 private:
  using Vector = std::vector<float>;
  struct LayerCache {
    std::vector<Vector> keys, values;    // [position][heads * dim]
    std::vector<Vector> inputs;          // of a convolution, [position][channels]
    std::vector<double> matrices;        // of a delta net, [value heads][dim of k][dim of v], or of
                                         // a state space, [heads][state dim][head dim]
    std::vector<Vector> index_keys;      // of an indexer, [position][dim]
    std::vector<size_t> chosen;          // by it for the token at hand
    struct Entries {                     // of compressed attention
      std::vector<Vector> rows, scores;  // [position][channels]
      std::vector<Vector> made;          // [entry][dim]
    } entries, index_entries;
    std::vector<Vector> ngrams;  // gated values, normed, [position][streams * hidden]
  };

  Interpreter(const ir::ModuleGraph& graph, const input::GgufFile& gguf, ThreadPool* pool)
      : graph_(graph), gguf_(gguf), pool_(pool) {}

  const ir::Module& need(const ir::Module& parent, ir::Role role) const;
  // All rows of a parameter, its matrices one behind the other, or some of them; empty where the
  // module has none of that name. Valid until the next layer.
  std::span<const float> weights(const ir::Module& module, std::string_view param) const;
  std::span<const float> rows(const ir::Module& module, std::string_view param, int64_t first,
                              int64_t count) const;
  static bool has(const ir::Module& module, std::string_view param) {
    return std::ranges::find(module.params, param, &ir::Param::name) != module.params.end();
  }
  void forget_weights() const;
  Vector multiply(std::span<const float> w, std::span<const float> x) const;
  Vector linear(const ir::Module& module, std::span<const float> x) const;
  Vector part_linear(const ir::Module& parent, ir::Role role, ir::Role fused, size_t first,
                     size_t count, std::span<const float> x) const;
  // `more`: positions ahead of the token's.
  void grow(const PositionScaleAttrs& attrs, std::span<float> q, int64_t more = 0) const;
  Vector norm(const ir::Module& module, std::span<const float> x) const;
  // x itself where the parent has no such norm.
  Vector optional_norm(const ir::Module& parent, ir::Role role, Vector x) const;
  void rotate(const ir::Module& rotary, std::span<float> x) const;
  void rotate(const ir::RotaryInfo& rotary, bool interleaved, std::span<float> x) const;
  // By another position than the token's.
  void rotate_at(const ir::RotaryInfo& rotary, bool interleaved, int64_t position,
                 std::span<float> x) const;
  const ir::Module& rotary_of(const ir::Module& attention) const;
  Vector attention(const ir::Module& module, std::span<const float> x);
  Vector delta_net(const ir::Module& module, std::span<const float> x);
  Vector state_space(const ir::Module& module, std::span<const float> x);
  Vector selective_scan(const ir::Module& module, std::span<const float> x);
  Vector delta_inputs(const ir::Module& module, const ir::DeltaNetInfo& info,
                      std::span<const float> x) const;
  Vector short_conv(const ir::Module& module, std::span<const float> x);
  // `plain`: without silu.
  Vector convolve(const ir::Module& module, int32_t taps, Vector input, bool plain = false);
  Vector latent_attention(const ir::Module& module, std::span<const float> x);
  void choose_positions(const ir::Module& attention, const ir::Module& indexer,
                        std::span<const float> x, std::span<const float> q_latent);
  std::vector<std::vector<size_t>> choose_blocks(const ir::Module& attention,
                                                 std::span<const float> x);
  std::vector<std::vector<size_t>> choose_pools(const ir::Module& attention,
                                                std::span<const float> x);
  Vector attend_blocks(const ir::Module& attention, std::span<const float> x,
                       std::span<const float> q, AttentionAttrs attrs);
  Vector compressed_attention(const ir::Module& module, std::span<const float> x);
  std::optional<Vector> make_entry(const ir::Module& compressor,
                                   const LayerCache::Entries& entries) const;
  const std::vector<Vector>& compress(const ir::Module& compressor, std::span<const float> x,
                                      LayerCache::Entries& entries) const;
  std::vector<size_t> choose_entries(const ir::Module& attention, const ir::Module& indexer,
                                     std::span<const float> x, std::span<const float> q_latent);
  // The weights of hyper-connections, as StreamWeightsAttrs says it, and what they make of streams.
  std::vector<double> stream_weights(const ir::Module& streams, std::span<const float> x) const;
  Vector collapse(const ir::Module& streams, std::span<const float> x) const;
  Vector mix(const ir::Module& streams, std::span<const float> x,
             std::span<const float> part) const;
  // The same with gates, as StreamsInfo says it; and what n-grams add (interpreter_ngrams.cc).
  Vector gated_mean(const ir::Module& streams, std::span<const float> x) const;
  Vector give(const ir::Module& streams, std::span<const float> x,
              std::span<const float> part) const;
  void add_ngrams(const ir::Module& part, Vector& x);
  Vector ngram_rows(const ir::Module& ngrams) const;
  // What a module reads of streams, the last of which is the present one; and a layer of such.
  Vector attend_streams(const ir::Module& sources, const std::vector<Vector>& all) const;
  Vector attending_layer(const ir::Module& layer, Vector x);
  // The streams as AltUp predicts or corrects them, by its formulas.
  Vector altup_kinds(const ir::Module& altup, std::span<const float> active) const;
  Vector predict(const ir::Module& altup, std::span<const float> x) const;
  Vector correct(const ir::Module& altup, std::span<const float> x,
                 std::span<const float> active) const;
  Vector altup_layer(const ir::Module& layer, std::span<const float> inputs,
                     std::span<const float> x);
  Vector project_streams(const ir::Module& projections, std::span<const float> one) const;
  Vector join_streams(const ir::Module& projections, std::span<const float> x) const;
  std::pair<Vector, Vector> expand_latent(const ir::Module& kv_b, const ir::MlaInfo& info,
                                          std::span<const float> latent) const;
  Vector attend(const LayerCache& cache, std::span<const float> q, const AttentionAttrs& attrs,
                std::span<const float> sinks) const;
  void store_keys(const ir::Module& module, std::span<const float> x);
  Vector mlp(const ir::Module& module, std::span<const float> x) const;
  Vector moe(const ir::Module& module, std::span<const float> x) const;
  Vector routed(const ir::Module& router, const ir::Module& experts, std::span<const float> scored,
                std::span<const float> x) const;
  // The experts of the token at hand by a table of the router.
  std::vector<std::pair<int32_t, float>> route_by_table(const ir::Module& router,
                                                        std::span<const float> logits) const;
  Vector feed_forward(const ir::Module& layer, std::span<const float> x) const;
  Vector layer_inputs(const ir::Module& model, int32_t token, std::span<const float> x) const;
  Vector layer_input(const ir::Module& layer, std::span<const float> all,
                     std::span<const float> x) const;

  const ir::ModuleGraph& graph_;
  const input::GgufFile& gguf_;
  ThreadPool* pool_;
  // By the first row and the number of rows.
  mutable std::map<std::tuple<const ir::Param*, int64_t, int64_t>, Vector> weights_;
  mutable int64_t kept_floats_ = 0;
  std::vector<LayerCache> caches_;
  int64_t position_ = 0;
  int32_t token_ = 0;
  std::vector<int32_t> tokens_;  // of the sequence, that one the last
  Vector hidden_;
  std::vector<Vector> streams_;
  std::vector<Vector> earlier_;  // streams that ended
};

// Which experts a token goes to and with what weight, as RouterAttrs says.
std::vector<std::pair<int32_t, float>> route(const RouterAttrs& attrs,
                                             std::span<const float> logits,
                                             std::span<const float> bias);

}  // namespace ktx::reference

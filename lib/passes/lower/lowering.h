// The work of lower_to_steps.cc: a module graph's steps, values and blobs, part by part.
#pragma once

#include <fmt/format.h>

#include <array>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lib/passes/lower/expert_groups.h"
#include "lib/passes/pass.h"

namespace ktx::passes {

class Lowering {
 public:
  Lowering(const ir::ModuleGraph& modules, std::span<const Tap> taps, int32_t image_parts,
           program::Program& program)
      : modules_(modules), taps_(taps), image_parts_(image_parts), program_(program) {}

  Status run();

 private:
  using Module = ir::Module;
  using Param = ir::Param;
  using Role = ir::Role;
  using BlobId = program::BlobId;
  using View = program::View;

  // What the last product of a module gives to the residual stream, on the module's device or
  // another one.
  struct Term {
    Term(const Module* m, View v) : Term(m, v, m->decision.device) {}
    Term(const Module* m, View v, std::string d) : module(m), view(v), device(std::move(d)) {}
    const Module* module;
    View view;
    std::string device;
  };
  using Terms = std::vector<Term>;
  // Where a head's key and value parts of the latent projection are: in their own
  // tensors, or rows of one matrix per head (nope rows of key, then value rows).
  struct LatentProjection {
    BlobId key = program::kAbsent;
    BlobId value = program::kAbsent;
    bool split = true;
  };
  // The router's output, and what the experts take.
  struct Routed {
    const RouterAttrs& router;
    View in, ids, weights;
    std::string home;  // the CPU beside the router
  };

  // The pairs of a group of experts, and what these read.
  struct Pairs {
    int32_t top_k = 0;
    View in, order, offsets, weights;
  };

  // lowering.cc: values, steps, blobs, products and norms.
  Result<const Module*> child(const Module& parent, Role role) const;
  template <class T>
  Result<const T*> info_of(const Module& module) const {
    const T* found = std::get_if<T>(&module.info);
    if (found) return found;
    return Error{fmt::format("module '{}' lacks the attributes of its role {}", module.path,
                             name(module.role))};
  }
  View value(const std::string& base, int64_t width, ValueType type = ValueType::F32,
             RowKind rows = RowKind::Token, int32_t rows_per_row = 1);
  void emit(const Module& module, StepOp op, std::vector<View> inputs, std::vector<View> outputs,
            std::vector<BlobId> weights, StepAttrs attrs) {
    emit_on(module.decision.device, module, op, std::move(inputs), std::move(outputs),
            std::move(weights), std::move(attrs));
  }
  void emit_on(const std::string& device, const Module& module, StepOp op, std::vector<View> inputs,
               std::vector<View> outputs, std::vector<BlobId> weights, StepAttrs attrs);
  Result<BlobId> blob(const Module& module, std::string_view param_name, int64_t matrices = 0);
  Result<BlobId> blob(const Module& module, const Param* param, int64_t matrices = 0);
  Result<BlobId> blob_on(const std::string& device, const Module& module, const Param* param,
                         int64_t matrices = 0);
  Result<BlobId> optional_blob(const Module& module, std::string_view param_name);
  static std::vector<BlobId> present(std::vector<BlobId> blobs, size_t least);
  BlobId inv_freq_blob(const Module& module, const ir::RotaryInfo& rotary,
                       const std::string& device);
  BlobId constant(const std::string& blob_name, const std::vector<float>& values,
                  const std::string& device);
  BlobId ones_blob(int64_t width, const Module& module);
  Status matmul(const Module& module, View in, View out);
  Status apply_factor(const Module& module, View out);
  Result<View> linear(const Module& parent, Role role, View in, const char* value_name);
  Result<View> part_linear(const Module& parent, Role role, Role fused, int64_t first, int64_t rows,
                           View in, const char* value_name);
  static Result<Param> rows_of(const Module& module, const Param& whole, int64_t first,
                               int64_t rows);
  Status norm(const Module& module, View in, View out);
  Status optional_norm(const Module& parent, Role role, View view);
  void scale_by(const Module& module, View view, float factor) {
    emit(module, StepOp::Scale, {view}, {view}, {}, ScaleAttrs{factor});
  }

  // lower_to_steps.cc: the stream from the embedding to the outputs, and dense parts of layers.
  Status lower_embedding(const Module& embedding);
  Status lower_outputs(const Module& root, const Module& model, const Module& last_layer);
  Status lower_text_dense(const Module& root, View last);
  Status lower_scores(const Module& root, View last);
  Status add_embedding_row(const Module& model, Role role, int32_t row, const char* value_name);
  Status lower_prediction_input(const Module& layers);
  Status lower_head_input(const Module& model, const Module& layer);
  void keep_stream(int32_t layer, const Module& reader, const std::string& device);
  Status lower_layer(const Module& layer);
  bool mixes(const Module& layer) const;
  bool feeds_forward(const Module& layer) const;
  Status lower_feed_forward(const Module& layer, View in);
  Status lower_layer_inputs(const Module& model);
  Result<Term> layer_input(const Module& layer, View read);
  Status add_layer_input(const Module& layer);
  Result<Terms> lower_mixers(const Module& layer, View in);
  Result<View> part_input(const Module& layer, Role pre_norm, const char* value_name);
  Result<Term> term(const Module& parent, Role role, View in, const char* value_name);
  View sum_on(const std::string& device, const Terms& terms);
  Status add_to_stream(const Module& layer, Role post_norm, const Terms& terms);
  // To the stream, which begins with the term where the last one has ended.
  void add_to_last(const Term& t) {
    if (x_.value == program::kAbsent) {
      x_ = t.view;
    } else {
      add(t, x_);
    }
  }
  void add(const Term& t, View sum) {
    emit_on(t.device, *t.module, StepOp::Add, {sum, t.view}, {sum}, {}, NoAttrs{});
  }
  Result<View> mlp_hidden(const Module& mlp, View in);
  Result<Terms> lower_mlp(const Module& layer, View in);

  // lower_attention.cc
  Result<Term> lower_attention(const Module& attention, View in);
  Result<const Module*> rotary_of(const Module& attention) const;
  Status rope(const Module& attention, View in, View out, RopeAttrs attrs,
              std::optional<bool> interleaved = {});
  View grown(const Module& attention, View q, const PositionScaleAttrs& attrs,
             bool by_count = false);
  int32_t add_kv_slot(const Module& attention, int32_t kv_heads, int32_t key_dim, int32_t value_dim,
                      int32_t window = 0);
  Status norm_keys(const Module& attention, const ir::AttentionInfo& a, View& k, View& v);
  Result<int32_t> slot_of(const Module& attention, const ir::AttentionInfo& a);
  void clamp(const Module& attention, const ir::AttentionInfo& a, View x);
  void apply_gate(const Module& attention, const ir::AttentionInfo& a, View gate, View out);
  Result<View> head_halves(const Module& attention, const ir::AttentionInfo& a, int32_t half,
                           View in, const char* value_name);

  Result<View> chosen_blocks(const Module& attention, const ir::AttentionInfo& a, View in);
  Result<View> chosen_pools(const Module& attention, const ir::AttentionInfo& a, View in);

  // lower_latent_attention.cc
  Result<Term> lower_mla(const Module& attention, View in);
  Result<LatentProjection> latent_projection(const Module& kv_b, const ir::MlaInfo& a);
  Result<View> chosen_positions(const Module& attention, const ir::MlaInfo& a, View in,
                                View q_latent);
  Result<int32_t> pools(const Module& attention, const Module& indexer, View in, View key);

  // lower_compressed_attention.cc
  Result<Term> lower_compressed_attention(const Module& attention, View in);
  Result<const Module*> compressed_rotary(const Module& attention) const;
  Status rotate_ends(const Module& attention, View view, int32_t heads, int32_t head_dim,
                     bool back = false);
  Result<int32_t> entries(const Module& attention, const Module& compressor, View in);
  Result<int32_t> store_entries(const Module& attention, const Module& compressor,
                                std::array<View, 2> rows, CompressAttrs attrs,
                                std::array<BlobId, 2> ends);
  Result<View> chosen_entries(const Module& attention, const Module& indexer,
                              const ir::CompressedAttentionInfo& a, View in, View q_latent);

  // lower_images.cc
  Status lower_patches(const Module& patches);
  Status lower_image_rows(const Module& model, const Module& projector);
  Status lower_merged_rows(const Module& projector, View squares);
  Status add_places(const Module& model);
  Status lower_image_part(const Module& part);
  View squares_of(const Module& pooling, View patches, const char* value_name);
  Status two_linears(const Module& parent, View in, View out);
  Result<View> image_rows_part(const Module& second, int64_t part);
  View output_rows(const char* base, int64_t width) {
    return value(base, width, ValueType::F32, RowKind::Output);
  }
  void put_image_rows(const Module& module, int32_t part);

  // lower_streams.cc
  Status spread_streams(const Module& model);
  Result<View> collapse_streams(const Module& streams, View x, const char* value_name);
  View mean_of_streams(const Module& streams, const ir::StreamsInfo& s, View x,
                       const char* value_name);
  Result<View> gated_mean(const Module& streams, const ir::StreamsInfo& s, View x,
                          const char* value_name);
  void mix_streams(const Module& streams, View part);
  Result<View> attend_streams(const Module& sources, View x, std::span<const View> earlier,
                              const char* value_name);
  Result<View> attend_outputs(const Module& sources, const Module& reader,
                              const std::string& device);

  // lower_ngrams.cc
  Status add_ngrams(const Module& layer);
  Status lower_ngrams(const Module& part);
  Result<View> look_up_ngrams(const Module& ngrams);

  // lower_altup.cc
  Status project_streams(const Module& projections);
  Result<View> join_streams(const Module& projections, View streams);
  Status mix_by_altup(const Module& altup, View streams, View read, bool corrects);
  Status predict_streams(const Module& layer);
  Status correct_streams(const Module& layer);
  Status add_laurel(const Module& layer, View in);

  // lower_delta_net.cc
  Result<Term> lower_delta_net(const Module& net, View in);
  Result<Term> lower_channel_delta_net(const Module& net, const ir::DeltaNetInfo& d, View in);

  // lower_short_conv.cc
  Result<Term> lower_short_conv(const Module& conv, View in);

  // lower_state_space.cc
  Result<Term> lower_state_space(const Module& space, View in);

  // lower_selective_scan.cc
  Result<Term> lower_selective_scan(const Module& scan, View in);

  // lower_host_experts.cc
  Result<Term> lower_host_experts(const Module& experts, std::span<const ExpertGroup> groups,
                                  const Routed& routed);
  View sent(const Module& experts, const std::string& device, View view, const char* base,
            const std::string& suffix);
  void gather_host_experts();

  // lower_experts.cc
  Result<Terms> lower_moe(const Module& layer, const Module& moe, View in);
  void keep_router_input(const Module& layer);
  Result<Term> lower_experts_beside(const Module& layer, const Module& block);
  Result<Terms> lower_routed(const Module& router, const Module& experts, View scored, View in);
  Result<View> scaled_input(const Module& router, RouterAttrs attrs, View scores, View in);
  Result<Terms> lower_experts(const Module& experts, const Routed& routed);
  Result<Term> lower_experts_on(const Module& experts, const ExpertGroup& group,
                                const Routed& routed);
  Result<Pairs> group_pairs(const Module& experts, const ExpertGroup& group, const Routed& routed,
                            const std::string& device);
  Result<View> expert_products(const Module& experts, const ExpertGroup& group, const Pairs& pairs,
                               const View* by_pair = nullptr);
  static std::vector<float> places_of(const ExpertGroup& group, int32_t all);
  Status defer(const Module& experts, ExpertGroup& group, const Routed& routed);
  Result<Terms> lower_deferred();
  Result<Term> lower_shared_experts(const Module& moe, const Module& shared, View in);

  const ir::ModuleGraph& modules_;
  const std::span<const Tap> taps_;
  const int32_t image_parts_;  // CompileState::image_parts
  program::Program& program_;
  const Module* rotary_ = nullptr;
  const Module* local_rotary_ = nullptr;
  // Keys and values of a layer as they are stored, and its KV slots by device.
  struct Keys {
    View k, v;
    std::map<std::string, int32_t> slots;
  };
  std::map<int32_t, Keys> kept_;    // by layer
  std::map<int32_t, View> chosen_;  // positions, by layer
  View x_;                          // the residual stream, or several side by side
  View stream_weights_;             // of the part of a layer that is lowered, where there are some
  View streams_;                    // all of AltUp's, while x_ is the one that a layer computes
  std::vector<View> earlier_;       // streams that ended, where later layers read them
  View layer_inputs_;               // of all layers, where the embedding has parts for them
  View router_input_;               // of the layer, where its router does not read what experts do
  std::optional<View> head_input_;  // of a draft head's attention
  int32_t layer_ = -1;
  struct Deferred {
    const Module* experts;
    ExpertGroup group;
    Routed routed;
  };
  std::vector<Deferred> deferred_;  // of the last layer with experts
  // Terms that other hosts compute until they are needed.
  struct Sent {
    const Module* experts;
    std::string home;
    View pairs, ids, out;
    struct Back {
      View pairs, order, offsets;
      float use;
    };
    std::vector<Back> backs;
    int32_t top_k;
  };
  std::vector<Sent> sent_;
  View image_rows_;               // of a tower: all parts side by side, once there is one
  int64_t image_parts_done_ = 0;  // but the first
  int32_t states_ = 0;
  std::map<std::string, BlobId> blob_ids_;
};

}  // namespace ktx::passes

// Attention over heads, over a latent, over compressed entries, and its indexers.
#include "tools/dev/synth/model_tensors.h"

#include <fmt/format.h>

namespace ktx::synth {
namespace {

void add_indexer(const ModelShape& s, TensorMaker& t, int64_t layer, const std::string& indexer) {
  t.matrix(indexer + "attn_q_b.weight", layer, {s.q_rank, s.index_heads * s.index_dim});
  t.matrix(indexer + "attn_k.weight", layer, {s.hidden, s.index_dim});
  t.ones(indexer + "k_norm.weight", s.index_dim);
  t.noise(indexer + "k_norm.bias", s.index_dim, 0.02f);
  t.matrix(indexer + "proj.weight", layer, {s.hidden, s.index_heads});
  if (s.index_pool == 0) return;
  const std::string pools = fmt::format("blk.{}.indexer_compressor_", layer);
  t.matrix(pools + "gate.weight", layer, {s.hidden, s.index_dim});
  t.noise(pools + "ape.weight", {s.index_dim, s.index_pool}, 0.1f);
}

void add_block_indexer(const ModelShape& s, TensorMaker& t, int64_t layer,
                       const std::string& indexer) {
  t.matrix(indexer + "q_proj.weight", layer, {s.hidden, s.index_heads * s.index_dim});
  t.matrix(indexer + "k_proj.weight", layer, {s.hidden, s.index_dim});
  t.ones(indexer + "q_norm.weight", s.index_dim);
  t.ones(indexer + "k_norm.weight", s.index_dim);
}

// Entries of 4 positions overlap.
void add_compressor(const ModelShape& s, TensorMaker& t, int64_t layer, const std::string& name,
                    int64_t dim) {
  const int64_t every = s.every_of(layer), channels = dim * (every == 4 ? 2 : 1);
  t.matrix(name + "_kv.weight", layer, {s.hidden, channels});
  t.matrix(name + "_gate.weight", layer, {s.hidden, channels});
  t.noise(name + "_ape.weight", {channels, every}, 0.1f);
  t.ones(name + "_norm.weight", dim);
}

}  // namespace

void add_attention(const ModelShape& s, TensorMaker& t, int64_t layer, const std::string& blk) {
  if (s.has_indexer(layer)) add_block_indexer(s, t, layer, blk + "indexer.");
  const int64_t head_dim = s.head_dim_of(layer);
  const int64_t q = s.of_layer(s.heads, layer) * head_dim;
  const int64_t kv = s.of_layer(s.kv_heads, layer) * head_dim;
  const int64_t v = s.of_layer(s.kv_heads, layer) * s.value_dim_of(layer);
  const int64_t read = s.of_layer(s.heads, layer) * s.value_dim_of(layer);
  const bool fused = s.family->has_role(ir::Role::QkvProj);
  if (fused) {
    t.matrix(blk + "attn_qkv.weight", layer, {s.hidden, q + 2 * kv});
  } else {
    t.matrix(blk + "attn_q.weight", layer, {s.hidden, s.family->gated_attention ? 2 * q : q});
    // Gemma 3n's files have them in every layer.
    const bool idle = s.has_altup();
    if (idle || s.has_own_keys(layer)) t.matrix(blk + "attn_k.weight", layer, {s.hidden, kv});
    if (idle || s.has_own_values(layer)) t.matrix(blk + "attn_v.weight", layer, {s.hidden, v});
  }
  t.matrix(blk + "attn_output.weight", layer, {read, s.hidden}, kResidualSigma);
  t.norm(ir::Role::AttentionInnerNorm, layer, read);
  if (s.has_qkv_bias() && fused) {
    t.noise(blk + "attn_qkv.bias", q + 2 * kv, kSigma);
    if (s.always_has(ir::Role::OProj, "bias")) t.noise(blk + "attn_output.bias", s.hidden, kSigma);
  } else if (s.has_qkv_bias()) {
    t.noise(blk + "attn_q.bias", q, kSigma);
    t.noise(blk + "attn_k.bias", kv, kSigma);
    t.noise(blk + "attn_v.bias", v, kSigma);
    if (s.family->bias == families::BiasKind::Config || s.always_has(ir::Role::OProj, "bias")) {
      t.noise(blk + "attn_output.bias", s.hidden, kSigma);
    }
  }
  if (s.has_sinks(layer)) {
    t.noise(blk + "attn_sinks.weight", s.of_layer(s.heads, layer), 0.5f);
  }
  if (s.family->has_role(ir::Role::AttentionGateProj)) {
    t.matrix(blk + "attn_gate.weight", layer,
             {s.hidden, s.has_head_gates() ? s.of_layer(s.heads, layer) : q});
  }
  const bool rows = s.family->qk_norm == families::QkNormKind::Row;
  if (!s.has_qk_norm) return;
  if (s.family->qk_norm == families::QkNormKind::EachHead) {
    t.noise(blk + "attn_q_norm.weight", {head_dim, s.of_layer(s.heads, layer)}, 0.02f, 1);
    t.noise(blk + "attn_k_norm.weight", {head_dim, s.of_layer(s.kv_heads, layer)}, 0.02f, 1);
    return;
  }
  t.norm(ir::Role::QRotatedNorm, layer, s.head_dim);
  t.norm(ir::Role::KRotatedNorm, layer, s.head_dim);
  t.norm(ir::Role::QNorm, layer, rows ? q : head_dim);
  if (s.has_own_keys(layer)) t.norm(ir::Role::KNorm, layer, rows ? kv : head_dim);
}

void add_mla(const ModelShape& s, TensorMaker& t, int64_t layer, const std::string& blk) {
  const int64_t heads = s.heads[0], q = heads * (s.nope + s.rope);
  if (s.q_rank > 0) {
    t.matrix(blk + "attn_q_a.weight", layer, {s.hidden, s.q_rank});
    t.ones(blk + "attn_q_a_norm.weight", s.q_rank);
    t.matrix(blk + "attn_q_b.weight", layer, {s.q_rank, q});
  } else {
    t.matrix(blk + "attn_q.weight", layer, {s.hidden, q});
  }
  t.matrix(blk + "attn_kv_a_mqa.weight", layer, {s.hidden, s.kv_rank + s.rope});
  t.ones(blk + "attn_kv_a_norm.weight", s.kv_rank);
  if (s.options.unsplit_kv) {
    t.matrix(blk + "attn_kv_b.weight", layer, {s.kv_rank, heads * (s.nope + s.v_dim)});
  } else {
    t.matrix(blk + "attn_k_b.weight", layer, {s.nope, s.kv_rank, heads});
    t.matrix(blk + "attn_v_b.weight", layer, {s.kv_rank, s.v_dim, heads});
  }
  t.matrix(blk + "attn_output.weight", layer, {heads * s.v_dim, s.hidden}, kResidualSigma);
  if (s.family->has_role(ir::Role::AttentionGateProj) &&
      s.flag("mla_use_output_gate").value_or(true)) {
    t.matrix(blk + "attn_gate.weight", layer,
             {s.hidden, s.has_head_gates() ? heads : heads * s.v_dim});
  }
  if (s.has_indexer(layer)) add_indexer(s, t, layer, blk + "indexer.");
}

void add_compressed_attention(const ModelShape& s, TensorMaker& t, int64_t layer,
                              const std::string& blk) {
  const int64_t heads = s.heads[0], every = s.every_of(layer);
  t.matrix(blk + "attn_q_a.weight", layer, {s.hidden, s.q_rank});
  t.ones(blk + "attn_q_a_norm.weight", s.q_rank);
  t.matrix(blk + "attn_q_b.weight", layer, {s.q_rank, heads * s.head_dim});
  t.matrix(blk + "attn_kv.weight", layer, {s.hidden, s.head_dim});
  t.ones(blk + "attn_kv_a_norm.weight", s.head_dim);
  t.matrix(blk + "attn_output_a.weight", layer,
           {heads * s.head_dim / s.out_groups, s.out_groups * s.out_rank});
  t.matrix(blk + "attn_output_b.weight", layer, {s.out_groups * s.out_rank, s.hidden},
           kResidualSigma);
  t.noise(blk + "attn_sinks.weight", heads, 0.1f);
  if (every == 0) return;
  add_compressor(s, t, layer, blk + "attn_compressor", s.head_dim);
  if (every != 4) return;
  add_compressor(s, t, layer, blk + "indexer_compressor", s.index_dim);
  t.matrix(blk + "indexer.attn_q_b.weight", layer, {s.q_rank, s.index_heads * s.index_dim});
  t.matrix(blk + "indexer.proj.weight", layer, {s.hidden, s.index_heads});
}

}  // namespace ktx::synth

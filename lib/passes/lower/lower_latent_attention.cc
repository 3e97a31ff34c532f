// Multi-head latent attention, lowered in absorbed form: queries go through k_b into the latent
// space, attention reads [latent | rotary key] as one KV head whose value is the latent, and v_b
// brings the result back. With an indexer it reads the positions that this has chosen, or pools of
// them: those are entries of a compressed slot for the indexer, and blocks for attention.
#include <fmt/format.h>

#include <cmath>

#include "lib/passes/lower/lowering.h"

namespace ktx::passes {

using ir::Module;
using ir::Role;
using program::BlobId;
using program::kAbsent;
using program::View;

Result<Lowering::LatentProjection> Lowering::latent_projection(const Module& kv_b,
                                                               const ir::MlaInfo& a) {
  if (kv_b.param("weight")) {
    const BlobId both = KTX_TRY(blob(kv_b, "weight", a.heads));
    return LatentProjection{both, both, false};
  }
  const BlobId key = KTX_TRY(blob(kv_b, "k_b", a.heads));
  const BlobId value = KTX_TRY(blob(kv_b, "v_b", a.heads));
  return LatentProjection{key, value, true};
}

Result<Lowering::Term> Lowering::lower_mla(const Module& attention, View in) {
  const ir::MlaInfo* a = KTX_TRY(info_of<ir::MlaInfo>(attention));
  const int32_t q_dim = a->nope_dim + a->rope_dim;
  const int32_t key_dim = a->kv_lora_rank + a->rope_dim;
  View q, latent;
  if (a->q_lora_rank > 0) {
    latent = KTX_TRY(linear(attention, Role::QAProj, in, "q_a"));
    KTX_TRY(norm(*KTX_TRY(child(attention, Role::QANorm)), latent, latent));
    q = KTX_TRY(linear(attention, Role::QBProj, latent, "q"));
  } else {
    q = KTX_TRY(linear(attention, Role::QProj, in, "q"));
  }
  q = grown(attention, q, a->grown);
  const View kv = KTX_TRY(linear(attention, Role::KvAProj, in, "kv_a"));
  const View kv_latent{kv.value, 0, a->kv_lora_rank};
  const View kv_rope{kv.value, a->kv_lora_rank, a->rope_dim};
  KTX_TRY(norm(*KTX_TRY(child(attention, Role::KvANorm)), kv_latent, kv_latent));
  if (a->rotated) {
    KTX_TRY(rope(attention, kv_rope, kv_rope,
                 {.heads = 1, .head_dim = a->rope_dim, .y_head_dim = a->rope_dim}));
  }
  const int32_t slot = add_kv_slot(attention, 1, key_dim, 0);
  emit(attention, StepOp::KvStore, {kv, View{}}, {}, {}, KvStoreAttrs{slot});

  const Module& kv_b = *KTX_TRY(child(attention, Role::KvBProj));
  const LatentProjection b = KTX_TRY(latent_projection(kv_b, *a));
  const View absorbed = value("q_latent", int64_t{a->heads} * key_dim);
  RopeAttrs rotated{.heads = a->heads,
                    .head_dim = q_dim,
                    .rotary_begin = a->nope_dim,
                    .y_head_dim = key_dim,
                    .y_begin = a->kv_lora_rank};
  if (a->rotated) {
    KTX_TRY(rope(attention, q, absorbed, rotated));
  } else if (a->rope_dim > 0) {  // by no angle: a copy
    rotated.rotary_dim = a->rope_dim;
    const std::string& device = attention.decision.device;
    const std::vector<float> still(static_cast<size_t>(a->rope_dim / 2));
    const BlobId inv_freq =
        constant(fmt::format("still.{}@{}", a->rope_dim, device), still, device);
    emit(attention, StepOp::Rope, {q}, {absorbed}, {inv_freq}, rotated);
  }
  // After the rotary parts of the same rows, which need no product.
  emit(kv_b, StepOp::MatmulHeads, {q, View{}}, {absorbed}, {b.key},
       MatmulHeadsAttrs{a->heads, !b.split, 0, b.split ? a->kv_lora_rank : a->nope_dim, q_dim,
                        key_dim});
  const View latent_out = value("attn_latent", int64_t{a->heads} * a->kv_lora_rank);
  const AttentionAttrs attrs{slot, a->heads, 1, key_dim, a->kv_lora_rank, 1, a->scale};
  if (a->index_pool > 0) {
    const View pools = KTX_TRY(chosen_positions(attention, *a, in, latent));
    emit(attention, StepOp::BlockAttention, {absorbed, pools}, {latent_out}, {},
         BlockAttentionAttrs{slot, a->heads, 1, key_dim, a->kv_lora_rank, a->index_pool, a->scale,
                             1, 1});
  } else if (a->top_k > 0) {
    const View positions = KTX_TRY(chosen_positions(attention, *a, in, latent));
    emit(attention, StepOp::SparseAttention, {absorbed, positions}, {latent_out}, {}, attrs);
  } else {
    emit(attention, StepOp::Attention, {absorbed}, {latent_out}, {kAbsent}, attrs);
  }
  const View out = value("attn", int64_t{a->heads} * a->value_dim);
  emit(kv_b, StepOp::MatmulHeads, {latent_out, View{}}, {out}, {b.value},
       MatmulHeadsAttrs{a->heads, 0, b.split ? 0 : a->nope_dim, a->value_dim, a->kv_lora_rank,
                        a->value_dim});
  if (modules_.child(attention, Role::AttentionGateProj)) {
    const View gate = KTX_TRY(linear(attention, Role::AttentionGateProj, in, "attn_gate"));
    if (gate.width == out.width) {
      emit(attention, StepOp::Glu, {gate, out}, {out}, {},
           GluAttrs{static_cast<int32_t>(Activation::Sigmoid)});
    } else {
      emit(attention, StepOp::HeadScale, {out, gate}, {out}, {}, HeadScaleAttrs{a->heads});
    }
  }
  return term(attention, Role::OProj, out, "attn_out");
}

// The positions that sparse attention reads: its indexer's choice, or that of an earlier layer.
// The indexer's keys have a KV slot of their own.
Result<View> Lowering::chosen_positions(const Module& attention, const ir::MlaInfo& a, View in,
                                        View q_latent) {
  const Module* indexer = modules_.child(attention, Role::Indexer);
  if (!indexer) {
    const auto found = chosen_.find(a.positions_of_layer);
    if (found != chosen_.end()) return found->second;
    return Error{fmt::format("module '{}' takes the positions of layer {}, which has none",
                             attention.path, a.positions_of_layer)};
  }
  const View q = KTX_TRY(linear(*indexer, Role::IndexQProj, q_latent, "index_q"));
  const View k = KTX_TRY(linear(*indexer, Role::IndexKProj, in, "index_k"));
  KTX_TRY(norm(*KTX_TRY(child(*indexer, Role::IndexKNorm)), k, k));
  if (a.rotated) {
    RopeAttrs rotated{.head_dim = a.index_dim, .y_head_dim = a.index_dim};
    KTX_TRY(rope(attention, k, k, rotated, a.index_interleaved));
    rotated.heads = a.index_heads;
    KTX_TRY(rope(attention, q, q, rotated, a.index_interleaved));
  }
  int32_t slot;
  if (a.index_pool > 0) {
    slot = KTX_TRY(pools(attention, *indexer, in, k));
  } else {
    slot = add_kv_slot(attention, 1, a.index_dim, 0);
    emit(attention, StepOp::KvStore, {k, View{}}, {}, {}, KvStoreAttrs{slot});
  }
  const View weights = KTX_TRY(linear(*indexer, Role::IndexWeightsProj, in, "index_weights"));
  const double scale = 1 / std::sqrt(static_cast<double>(a.index_heads) * a.index_dim);
  ChoosePositionsAttrs attrs{slot, a.index_heads, a.index_dim, a.top_k, static_cast<float>(scale)};
  if (a.index_pool > 0) attrs.every = a.index_pool, attrs.open = 1;
  const View positions = value("positions", attrs.width(), ValueType::I32);
  emit(attention, StepOp::ChoosePositions, {q, weights}, {positions}, {}, attrs);
  chosen_[attention.layer] = positions;
  return positions;
}

// The KV slot of the keys that an indexer makes of pools of positions.
Result<int32_t> Lowering::pools(const Module& attention, const Module& indexer, View in, View key) {
  const ir::CompressorInfo* c = KTX_TRY(info_of<ir::CompressorInfo>(indexer));
  const View scores = value("index_scores", c->channels());
  const BlobId gate = KTX_TRY(blob(indexer, "pool_gate"));
  emit(indexer, StepOp::Matmul, {in, View{}}, {scores}, {gate, kAbsent}, MatmulAttrs{});
  return store_entries(attention, indexer, {key, scores}, {.every = c->every, .dim = c->dim},
                       {kAbsent, kAbsent});
}

}  // namespace ktx::passes

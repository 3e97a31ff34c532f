// Compressed attention, lowered: heads that share one key, which is the value as well, read the
// last positions and entries made of those before (CompressAttrs). Rows and scores of which entries
// are made have a KV slot of their own, which keeps as many positions as an entry needs.
#include <fmt/format.h>

#include <cmath>

#include "lib/passes/lower/lowering.h"

namespace ktx::passes {

using ir::Module;
using ir::Role;
using program::BlobId;
using program::kAbsent;
using program::View;

// Layers with entries are rotated as these are.
Result<const Module*> Lowering::compressed_rotary(const Module& attention) const {
  const Module* compressor = modules_.child(attention, Role::Compressor);
  return compressor ? child(*compressor, Role::Rotary) : rotary_of(attention);
}

// Rotates the last elements of each head in place, by the token's position or back.
Status Lowering::rotate_ends(const Module& attention, View view, int32_t heads, int32_t head_dim,
                             bool back) {
  const Module* module = KTX_TRY(compressed_rotary(attention));
  const ir::RotaryInfo* rotary = KTX_TRY(info_of<ir::RotaryInfo>(*module));
  const std::string& device = attention.decision.device;
  BlobId inv_freq = inv_freq_blob(*module, *rotary, device);
  if (back) {
    std::vector<float> negative = rotary->inv_freq;
    for (float& frequency : negative) frequency = -frequency;
    inv_freq = constant(fmt::format("{}.inv_freq_back@{}", module->path, device), negative, device);
  }
  const int32_t begin = head_dim - rotary->rotary_dim;
  emit(attention, StepOp::Rope, {view}, {view}, {inv_freq},
       RopeAttrs{heads, head_dim, begin, head_dim, begin, rotary->rotary_dim, rotary->interleaved,
                 rotary->mscale});
  return {};
}

// The KV slot of the entries that a compressor makes.
Result<int32_t> Lowering::entries(const Module& attention, const Module& compressor, View in) {
  const ir::CompressorInfo* c = KTX_TRY(info_of<ir::CompressorInfo>(compressor));
  const bool index = compressor.role == Role::Indexer;
  const View rows =
      KTX_TRY(linear(compressor, Role::CompressorKvProj, in, index ? "index_rows" : "rows"));
  const View scores =
      KTX_TRY(linear(compressor, Role::CompressorGateProj, in, index ? "index_scores" : "scores"));
  const Module& rotary_module = *KTX_TRY(child(compressor, Role::Rotary));
  const ir::RotaryInfo* rotary = KTX_TRY(info_of<ir::RotaryInfo>(rotary_module));
  const Module& entry_norm = *KTX_TRY(child(compressor, Role::CompressorNorm));
  CompressAttrs attrs;
  attrs.every = c->every;
  attrs.overlapped = c->overlapped;
  attrs.dim = c->dim;
  attrs.rotary_dim = rotary->rotary_dim;
  attrs.interleaved = rotary->interleaved;
  attrs.mscale = rotary->mscale;
  attrs.eps = KTX_TRY(info_of<ir::NormInfo>(entry_norm))->eps;
  const std::string& device = attention.decision.device;
  const BlobId weight = KTX_TRY(blob_on(device, entry_norm, entry_norm.param("weight")));
  const BlobId inv_freq = inv_freq_blob(rotary_module, *rotary, device);
  return store_entries(attention, compressor, {rows, scores}, attrs, {weight, inv_freq});
}

// The KV slot of the entries that are made of the rows and their scores, where there are some.
// `ends`: weights of the entries' norm, and their frequencies.
Result<int32_t> Lowering::store_entries(const Module& attention, const Module& compressor,
                                        std::array<View, 2> rows, CompressAttrs attrs,
                                        std::array<BlobId, 2> ends) {
  const bool scored = rows[1].value != kAbsent;
  attrs.slot = add_kv_slot(attention, static_cast<int32_t>(attrs.channels() / kCompressedChannels),
                           kCompressedChannels, scored ? kCompressedChannels : 0,
                           static_cast<int32_t>(attrs.window()));
  attrs.entries = add_kv_slot(attention, 1, entry_token_elems(attrs.dim, attrs.every), 0);
  emit(attention, StepOp::KvStore, {rows[0], rows[1]}, {}, {}, KvStoreAttrs{attrs.slot});
  BlobId bias = kAbsent;
  if (scored) {
    bias =
        KTX_TRY(blob_on(attention.decision.device, compressor, compressor.param("position_bias")));
  }
  emit(attention, StepOp::Compress, {}, {}, {bias, ends[0], ends[1]}, attrs);
  return attrs.entries;
}

Result<View> Lowering::chosen_entries(const Module& attention, const Module& indexer,
                                      const ir::CompressedAttentionInfo& a, View in,
                                      View q_latent) {
  const int32_t slot = KTX_TRY(entries(attention, indexer, in));
  const View q = KTX_TRY(linear(indexer, Role::IndexQProj, q_latent, "index_q"));
  KTX_TRY(rotate_ends(attention, q, a.index_heads, a.index_dim));
  const Module& scorer = *KTX_TRY(child(indexer, Role::IndexScorer));
  const View weights = KTX_TRY(linear(scorer, Role::IndexWeightsProj, in, "index_weights"));
  const View chosen = value("chosen", a.top_k, ValueType::I32);
  const double scale = 1 / std::sqrt(static_cast<double>(a.index_heads) * a.index_dim);
  emit(attention, StepOp::ChoosePositions, {q, weights}, {chosen}, {},
       ChoosePositionsAttrs{slot, a.index_heads, a.index_dim, a.top_k, static_cast<float>(scale),
                            a.every});
  return chosen;
}

Result<Lowering::Term> Lowering::lower_compressed_attention(const Module& attention, View in) {
  const ir::CompressedAttentionInfo* a = KTX_TRY(info_of<ir::CompressedAttentionInfo>(attention));
  const View latent = KTX_TRY(linear(attention, Role::QAProj, in, "q_a"));
  KTX_TRY(norm(*KTX_TRY(child(attention, Role::QANorm)), latent, latent));
  const View q = KTX_TRY(linear(attention, Role::QBProj, latent, "q"));
  KTX_TRY(norm(*KTX_TRY(child(attention, Role::QNorm)), q, q));
  const View key = KTX_TRY(linear(attention, Role::KProj, in, "kv"));
  KTX_TRY(norm(*KTX_TRY(child(attention, Role::KNorm)), key, key));
  KTX_TRY(rotate_ends(attention, q, a->heads, a->head_dim));
  KTX_TRY(rotate_ends(attention, key, 1, a->head_dim));
  const int32_t slot = add_kv_slot(attention, 1, a->head_dim, 0, a->window);
  emit(attention, StepOp::KvStore, {key, View{}}, {}, {}, KvStoreAttrs{slot});
  const View out = value("attn", int64_t{a->heads} * a->head_dim);
  const BlobId sinks = KTX_TRY(optional_blob(attention, "sinks"));
  if (const Module* compressor = modules_.child(attention, Role::Compressor)) {
    const int32_t of_entries = KTX_TRY(entries(attention, *compressor, in));
    const Module* indexer = modules_.child(*compressor, Role::Indexer);
    const View chosen =
        indexer ? KTX_TRY(chosen_entries(attention, *indexer, *a, in, latent)) : View{};
    emit(attention, StepOp::CompressedAttention, {q, chosen}, {out}, {sinks},
         CompressedAttentionAttrs{slot, of_entries, a->heads, a->head_dim, a->every, a->window,
                                  a->scale});
  } else {
    emit(attention, StepOp::Attention, {q}, {out}, {sinks},
         AttentionAttrs{slot, a->heads, 1, a->head_dim, a->head_dim, 1, a->scale, a->window});
  }
  KTX_TRY(rotate_ends(attention, out, a->heads, a->head_dim, true));
  const Module& down = *KTX_TRY(child(attention, Role::OAProj));
  const View latents = value("attn_latents", int64_t{a->groups} * a->group_rank);
  const BlobId weight = KTX_TRY(blob(down, "weight", a->groups));
  emit(down, StepOp::MatmulHeads, {out, View{}}, {latents}, {weight},
       MatmulHeadsAttrs{a->groups, 0, 0, a->group_rank, a->heads / a->groups * a->head_dim,
                        a->group_rank});
  return term(attention, Role::OProj, latents, "attn_out");
}

}  // namespace ktx::passes

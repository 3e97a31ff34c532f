// Attention of heads that have keys and values, lowered: rotary embedding, KV slots, gates.
#include <fmt/format.h>

#include <cmath>
#include <optional>

#include "lib/passes/lower/lowering.h"

namespace ktx::passes {

using ir::Module;
using ir::Param;
using ir::Role;
using program::BlobId;
using program::kAbsent;
using program::View;

// The rotary module: the attention's own, or the model's, which may have one for windows.
Result<const Module*> Lowering::rotary_of(const Module& attention) const {
  if (const Module* own = modules_.child(attention, Role::Rotary)) return own;
  const auto* a = std::get_if<ir::AttentionInfo>(&attention.info);
  if (local_rotary_ && a && a->window > 0) return local_rotary_;
  if (rotary_) return rotary_;
  return Error{fmt::format("module '{}' has no rotary embedding", attention.path)};
}

// Rotates pairs of the rotary module's kind, unless `interleaved` names another.
Status Lowering::rope(const Module& attention, View in, View out, RopeAttrs attrs,
                      std::optional<bool> interleaved) {
  const Module* module = KTX_TRY(rotary_of(attention));
  const ir::RotaryInfo* rotary = KTX_TRY(info_of<ir::RotaryInfo>(*module));
  if (module->role == Role::GridRotary || (image_parts_ > 0 && rotary->has_axes())) {
    emit(attention, StepOp::RopeGrid, {in}, {out},
         {inv_freq_blob(*module, *rotary, attention.decision.device)},
         RopeGridAttrs{attrs.heads, attrs.head_dim, rotary->interleaved, rotary->rotary_dim,
                       rotary->lines, rotary->columns, rotary->woven, rotary->mscale});
    return {};
  }
  attrs.rotary_dim = rotary->rotary_dim;
  attrs.interleaved = interleaved.value_or(rotary->interleaved);
  attrs.mscale = rotary->mscale;
  const BlobId inv_freq = inv_freq_blob(*module, *rotary, attention.decision.device);
  emit(attention, StepOp::Rope, {in}, {out}, {inv_freq}, attrs);
  return {};
}

// Queries that grow with the position, which commutes with their rotation. In a value of its own:
// a GPU's attention takes the rotation along where nothing else reads what it rotates.
View Lowering::grown(const Module& attention, View q, const PositionScaleAttrs& attrs,
                     bool by_count) {
  if (attrs.growth == 0) return q;
  const View out = value("q_grown", q.width);
  emit(attention, by_count ? StepOp::CountScale : StepOp::PositionScale, {q}, {out}, {}, attrs);
  return out;
}

int32_t Lowering::add_kv_slot(const Module& attention, int32_t kv_heads, int32_t key_dim,
                              int32_t value_dim, int32_t window) {
  program_.kv_slots.push_back(
      {attention.layer, kv_heads, key_dim, value_dim, attention.decision.device, window});
  return static_cast<int32_t>(program_.kv_slots.size()) - 1;
}

Result<Lowering::Term> Lowering::lower_attention(const Module& attention, View in) {
  const ir::AttentionInfo* a = KTX_TRY(info_of<ir::AttentionInfo>(attention));
  const int64_t q_rows = int64_t{a->heads} * a->head_dim;
  const int64_t kv_rows = int64_t{a->kv_heads} * a->head_dim;
  const int64_t v_rows = int64_t{a->kv_heads} * a->value_width();
  const bool own_keys = a->keys_of_layer < 0;
  View q = a->gated
               ? KTX_TRY(head_halves(attention, *a, 0, in, "q"))
               : KTX_TRY(part_linear(attention, Role::QProj, Role::QkvProj, 0, q_rows, in, "q"));
  const bool own_gate = modules_.child(attention, Role::AttentionGateProj) != nullptr;
  const View gate = a->gated ? KTX_TRY(head_halves(attention, *a, 1, in, "q_gate"))
                    : own_gate
                        ? KTX_TRY(linear(attention, Role::AttentionGateProj, in, "attn_gate"))
                        : View{};
  View k, v;
  if (own_keys) {
    k = KTX_TRY(part_linear(attention, Role::KProj, Role::QkvProj, q_rows, kv_rows, in, "k"));
  }
  if (own_keys && !a->keys_as_values) {
    v = KTX_TRY(
        part_linear(attention, Role::VProj, Role::QkvProj, q_rows + kv_rows, v_rows, in, "v"));
  }
  KTX_TRY(optional_norm(attention, Role::QNorm, q));
  if (own_keys) KTX_TRY(norm_keys(attention, *a, k, v));
  for (const View& one : {q, k, v}) clamp(attention, *a, one);
  q = grown(attention, q, a->grown, a->grown_by_count);
  if (a->rotated) {
    KTX_TRY(rope(attention, q, q,
                 {.heads = a->heads, .head_dim = a->head_dim, .y_head_dim = a->head_dim}));
  }
  if (a->rotated && own_keys) {
    KTX_TRY(rope(attention, k, k,
                 {.heads = a->kv_heads, .head_dim = a->head_dim, .y_head_dim = a->head_dim}));
  }
  KTX_TRY(optional_norm(attention, Role::QRotatedNorm, q));
  if (own_keys) {
    KTX_TRY(optional_norm(attention, Role::KRotatedNorm, k));
    kept_[attention.layer] = {k, v, {}};
  }
  const int32_t slot = KTX_TRY(slot_of(attention, *a));
  const View out = value("attn", int64_t{a->heads} * a->value_width());
  const BlobId sinks = KTX_TRY(optional_blob(attention, "sinks"));
  const AttentionAttrs attrs{slot,     a->heads,  a->kv_heads, a->head_dim, a->value_width(), 0,
                             a->scale, a->window, a->chunked,  a->softcap,  a->alibi};
  if (a->top_k > 0) {
    const bool pools = a->index_heads > 0;
    const View blocks =
        KTX_TRY(pools ? chosen_pools(attention, *a, in) : chosen_blocks(attention, *a, in));
    emit(attention, StepOp::BlockAttention, {q, blocks}, {out}, {},
         BlockAttentionAttrs{slot, a->heads, a->kv_heads, a->head_dim, a->head_dim, a->index_block,
                             a->scale, 0, pools ? 1 : 0});
  } else if (a->whole_text) {
    emit(attention, StepOp::TextAttention, {q}, {out}, {}, attrs);
  } else {
    emit(attention, StepOp::Attention, {q}, {out}, {sinks}, attrs);
  }
  if (a->gated || own_gate) apply_gate(attention, *a, gate, out);
  KTX_TRY(optional_norm(attention, Role::AttentionInnerNorm, out));
  return term(attention, Role::OProj, out, "attn_out");
}

void Lowering::clamp(const Module& attention, const ir::AttentionInfo& a, View x) {
  if (a.qkv_limit == 0 || x.width == 0) return;
  emit(attention, StepOp::Activate, {x}, {x}, {},
       ActivateAttrs{static_cast<int32_t>(UnitFunction::Clamp), a.qkv_limit});
}

// A number for each element, or for each head.
void Lowering::apply_gate(const Module& attention, const ir::AttentionInfo& a, View gate,
                          View out) {
  const bool sigmoid = a.gate == static_cast<int32_t>(HeadGate::Sigmoid);
  if (gate.width == out.width && sigmoid) {
    emit(attention, StepOp::Glu, {gate, out}, {out}, {},
         GluAttrs{static_cast<int32_t>(Activation::Sigmoid)});
  } else {
    emit(attention, StepOp::HeadScale, {out, gate}, {out}, {},
         HeadScaleAttrs{static_cast<int32_t>(gate.width), a.gate});
  }
}

// The blocks that block attention reads, by KV head. The indexer's keys have a KV slot of their
// own.
Result<View> Lowering::chosen_blocks(const Module& attention, const ir::AttentionInfo& a, View in) {
  const Module& indexer = *KTX_TRY(child(attention, Role::Indexer));
  const View q = KTX_TRY(linear(indexer, Role::IndexQProj, in, "index_q"));
  const View k = KTX_TRY(linear(indexer, Role::IndexKProj, in, "index_k"));
  KTX_TRY(norm(*KTX_TRY(child(indexer, Role::IndexQNorm)), q, q));
  KTX_TRY(norm(*KTX_TRY(child(indexer, Role::IndexKNorm)), k, k));
  RopeAttrs rotated{.head_dim = a.index_dim, .y_head_dim = a.index_dim};
  KTX_TRY(rope(attention, k, k, rotated));
  rotated.heads = a.kv_heads;
  KTX_TRY(rope(attention, q, q, rotated));
  const int32_t slot = add_kv_slot(attention, 1, a.index_dim, 0);
  emit(attention, StepOp::KvStore, {k, View{}}, {}, {}, KvStoreAttrs{slot});
  const View blocks = value("blocks", int64_t{a.kv_heads} * a.top_k, ValueType::I32);
  emit(attention, StepOp::ChooseBlocks, {q}, {blocks}, {},
       ChooseBlocksAttrs{slot, a.kv_heads, a.index_dim, a.top_k, a.index_block, a.index_local});
  return blocks;
}

// The blocks that all KV heads read, by keys that are the means of each block's (CompressAttrs).
Result<View> Lowering::chosen_pools(const Module& attention, const ir::AttentionInfo& a, View in) {
  const Module& indexer = *KTX_TRY(child(attention, Role::Indexer));
  const View q = KTX_TRY(linear(indexer, Role::IndexQProj, in, "index_q"));
  const View k = KTX_TRY(linear(indexer, Role::IndexKProj, in, "index_k"));
  KTX_TRY(norm(*KTX_TRY(child(indexer, Role::IndexQNorm)), q, q));
  KTX_TRY(rope(attention, q, q,
               {.heads = a.index_heads, .head_dim = a.index_dim, .y_head_dim = a.index_dim}));
  const Module& rotary_module = *KTX_TRY(rotary_of(attention));
  const ir::RotaryInfo* rotary = KTX_TRY(info_of<ir::RotaryInfo>(rotary_module));
  const Module& key_norm = *KTX_TRY(child(indexer, Role::IndexKNorm));
  const std::string& device = attention.decision.device;
  const BlobId weight = KTX_TRY(blob_on(device, key_norm, key_norm.param("weight")));
  const CompressAttrs entry{.every = a.index_block,
                            .dim = a.index_dim,
                            .rotary_dim = rotary->rotary_dim,
                            .interleaved = rotary->interleaved,
                            .mscale = rotary->mscale,
                            .eps = KTX_TRY(info_of<ir::NormInfo>(key_norm))->eps,
                            .from_first = 1};
  const int32_t slot =
      KTX_TRY(store_entries(attention, indexer, {k, View{}}, entry,
                            {weight, inv_freq_blob(rotary_module, *rotary, device)}));
  const auto scale = static_cast<float>(1 / std::sqrt(static_cast<double>(a.index_dim)));
  const ChoosePositionsAttrs attrs{slot, a.index_heads, a.index_dim, a.top_k, scale, a.index_block,
                                   1};
  const View blocks = value("blocks", attrs.width(), ValueType::I32);
  emit(attention, StepOp::ChoosePositions, {q, View{}}, {blocks}, {}, attrs);
  return blocks;
}

// For a layer with keys of its own. Where values are made of the key projection, too, they are
// taken before it is normed.
Status Lowering::norm_keys(const Module& attention, const ir::AttentionInfo& a, View& k, View& v) {
  if (!a.keys_as_values) {
    KTX_TRY(optional_norm(attention, Role::KNorm, k));
    return optional_norm(attention, Role::VNorm, v);
  }
  const View projected = k;
  k = value("k_normed", projected.width);
  v = value("v", projected.width);
  KTX_TRY(norm(*KTX_TRY(child(attention, Role::VNorm)), projected, v));
  return norm(*KTX_TRY(child(attention, Role::KNorm)), projected, k);
}

// The KV slot that an attention reads: its own, or that of an earlier layer. Where that layer is
// on another device its keys and values are stored here as well.
Result<int32_t> Lowering::slot_of(const Module& attention, const ir::AttentionInfo& a) {
  const auto found = kept_.find(a.keys_of_layer < 0 ? attention.layer : a.keys_of_layer);
  if (found == kept_.end()) {
    return Error{fmt::format("module '{}' reads the keys of layer {}, which has none",
                             attention.path, a.keys_of_layer)};
  }
  Keys& keys = found->second;
  const auto [slot, added] = keys.slots.try_emplace(attention.decision.device);
  if (added) {
    const int32_t kept = a.whole_text ? 0 : a.window;  // one pass reads them all
    slot->second = add_kv_slot(attention, a.kv_heads, a.head_dim, a.value_width(), kept);
    emit(attention, StepOp::KvStore, {keys.k, keys.v}, {}, {}, KvStoreAttrs{slot->second});
  }
  return slot->second;
}

// q_proj of gated attention has for each head the rows of its query, then those of its gate: the
// product with one half or the other of all heads.
Result<View> Lowering::head_halves(const Module& attention, const ir::AttentionInfo& a,
                                   int32_t half, View in, const char* value_name) {
  const Module* module = KTX_TRY(child(attention, Role::QProj));
  const Param* weight = module->param("weight");
  if (!weight || weight->sources.size() != 1 || weight->sources[0].row_count != -1) {
    return Error{fmt::format("the weight of '{}' cannot be cut by heads", module->path)};
  }
  Param part = *weight;
  part.name = half == 0 ? "weight.query" : "weight.gate";
  part.rows = int64_t{a.heads} * a.head_dim;
  part.sources.clear();
  for (int64_t head = 0; head < a.heads; ++head) {
    part.sources.push_back({weight->sources[0].tensor, (2 * head + half) * a.head_dim, a.head_dim});
  }
  const View out = value(value_name, part.rows);
  const BlobId weights = KTX_TRY(blob(*module, &part));
  emit(*module, StepOp::Matmul, {in, View{}}, {out}, {weights, kAbsent}, MatmulAttrs{});
  KTX_TRY(apply_factor(*module, out));
  return out;
}

}  // namespace ktx::passes

// Launches of a delta rule by chunks (delta_chunks.cuh): the tokens before whole chunks, the chunks
// of all texts by slabs that the workspace holds, the tokens behind them.
#include "kernels/cuda/delta_net/delta_chunks.cuh"

#include <algorithm>

#include "kernels/cuda/common/cuda_launch.cuh"

namespace ktx::kernels {
namespace {

int64_t key_bytes(const DeltaRuleAttrs& attrs) {
  return attrs.key_heads * static_cast<int64_t>(sizeof(ChunkKeys));
}
int64_t chunk_bytes(const DeltaRuleAttrs& attrs) {
  return key_bytes(attrs) + attrs.value_heads * static_cast<int64_t>(sizeof(ChunkHead));
}

Status launch_slab(const CudaDeltaRuleArgs& a, const ChunkSlab& slab, CudaStream stream) {
#ifdef KTX_CUDA_WGMMA
  std::byte* const heads = a.workspace + slab.chunks * key_bytes(a.attrs);
  const ChunkScratch scratch = {reinterpret_cast<ChunkKeys*>(a.workspace),
                                reinterpret_cast<ChunkHead*>(heads)};
  KTX_TRY(launch_prepare_chunks(a, slab, scratch, stream));
  return launch_chain_chunks(a, slab, scratch, stream);
#else
  (void)a, (void)slab, (void)stream;
  return Error{"delta_rule: this program has no chunks"};
#endif
}

Status launch_slabs(const CudaDeltaRuleArgs& a, CudaStream stream) {
  KTX_TRY(check_workspace("delta_rule", a.workspace_bytes, chunk_bytes(a.attrs)));
  const auto most =
      static_cast<int>(std::min<int64_t>(kSlabChunks, a.workspace_bytes / chunk_bytes(a.attrs)));
  ChunkSlab slab;
  for (size_t text = 0; text < a.rows.size(); ++text) {
    const TextRows& rows = a.rows[text];
    const ChunkTokens chunks = whole_chunks(rows.position, rows.tokens);
    for (int at = chunks.begin; at < chunks.end;) {
      const int count = std::min((chunks.end - at) / kDeltaChunk, most - slab.chunks);
      slab.run[slab.runs++] = {static_cast<int>(text), rows.first + at, slab.chunks, count,
                               at == 0};
      slab.chunks += count;
      at += count * kDeltaChunk;
      if (slab.chunks < most) continue;
      KTX_TRY(launch_slab(a, slab, stream));
      slab = {};
    }
  }
  return slab.runs == 0 ? Status() : launch_slab(a, slab, stream);
}

}  // namespace

bool delta_chunks_run(const DeltaRuleAttrs& attrs) {
#ifdef KTX_CUDA_WGMMA
  return attrs.head_dim == kDeltaChunkDim && attrs.by_channel == 0 && compute_capability() == 90;
#else
  (void)attrs;
  return false;
#endif
}

int64_t cuda_delta_rule_workspace(const DeltaRuleAttrs& attrs, int64_t tokens) {
  if (!delta_chunks_run(attrs)) return 0;
  return std::min<int64_t>(kSlabChunks, tokens / kDeltaChunk) * chunk_bytes(attrs);
}

Status launch_delta_chunks(const CudaDeltaRuleArgs& a, CudaStream stream) {
  bool head = false, tail = false, any = false;
  for (const TextRows& rows : a.rows) {
    const ChunkTokens chunks = whole_chunks(rows.position, rows.tokens);
    head = head || chunks.begin > 0;
    any = any || chunks.begin < chunks.end;
    tail = tail || chunks.end < rows.tokens;
  }
  if (!any) return launch_delta_tokens(a, DeltaPart::All, stream);
  if (head) KTX_TRY(launch_delta_tokens(a, DeltaPart::Head, stream));
  KTX_TRY(launch_slabs(a, stream));
  if (tail) KTX_TRY(launch_delta_tokens(a, DeltaPart::Tail, stream));
  return {};
}

}  // namespace ktx::kernels

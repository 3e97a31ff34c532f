// kv_store, attention, text_attention, attention over chosen positions and blocks and over
// compressed entries, the choice of these and the entries on a GPU.
#include "kernels/cuda/attention/cuda_attention.h"
#include "lib/runtime/cuda/cuda_steps.h"

#include <algorithm>

namespace ktx::runtime {

kernels::CudaAttentionArgs attention_args(const CudaBind& context, const AttentionAttrs& attrs) {
  const CudaView q = context.input(0), y = context.output(0);
  kernels::CudaAttentionArgs args;
  args.q = q.f32();
  args.q_stride = q.stride;
  args.y = y.f32();
  args.y_stride = y.stride;
  args.attrs = attrs;
  args.kv = context.kv_view(attrs.slot);
  return args;
}

int64_t attention_workspace(kernels::CudaAttentionArgs args) {
  // Fewer tokens are split into more parts: where so many are not split, more are not either.
  const int64_t tokens = args.tokens;
  int64_t most = 0;
  for (args.tokens = 1; args.tokens <= tokens; ++args.tokens) {
    const int64_t bytes = kernels::cuda_attention_workspace(args);
    if (bytes == 0) break;
    most = std::max(most, bytes);
  }
  return most;
}

namespace {

class KvStore final : public GpuStep {
 public:
  Status bind(const CudaBind& context) {
    const CudaView key = context.input(0), value = context.input(1);
    args_.key = key.f32();
    args_.key_stride = key.stride;
    args_.value = value.f32();
    args_.value_stride = value.stride;
    args_.kv = context.kv_view(context.attrs<KvStoreAttrs>().slot);
    gpu_ = &context.gpu();
    return {};
  }
  Status launch(const GpuShape& shape, std::byte*, int64_t) override {
    kernels::CudaKvStoreArgs args = args_;
    args.tokens = shape.tokens;
    gpu_->use();
    return kernels::launch_kv_store(args, gpu_->stream());
  }

 private:
  kernels::CudaKvStoreArgs args_;
  CudaGpu* gpu_ = nullptr;
};

class Attention : public GpuStep {
 public:
  Status bind(const CudaBind& context) {
    begin(context, context.attrs<AttentionAttrs>());
    args_.sinks = KTX_TRY(context.vector(0, sinks_));
    const plan::PlanFacts& facts = context.facts();
    if (facts.takes_images && !facts.image.causal) ahead_ = context.batch().text_end;
    return {};
  }
  int64_t workspace_bytes(const GpuShape& shape) const override {
    GpuShape ahead = shape;
    ahead.sees_ahead = ahead_ != nullptr;
    return std::max(attention_workspace(args_of(shape)), attention_workspace(args_of(ahead)));
  }
  Status launch(const GpuShape& shape, std::byte* workspace, int64_t bytes) override {
    kernels::CudaAttentionArgs args = args_of(shape);
    args.workspace = workspace;
    args.workspace_bytes = bytes;
    gpu_->use();
    return kernels::launch_attention(args, gpu_->stream());
  }

 protected:
  void begin(const CudaBind& context, const AttentionAttrs& attrs) {
    args_ = attention_args(context, attrs);
    gpu_ = &context.gpu();
  }
  // Each token sees up to where `end` has it, or as far as its window reaches.
  static void see_ahead(const int32_t* end, kernels::CudaAttentionArgs& args) {
    (args.attrs.window > 0 ? args.text_end : args.kv.position) = end;
  }
  kernels::CudaAttentionArgs args_;
  GpuMemory sinks_;

 private:
  kernels::CudaAttentionArgs args_of(const GpuShape& shape) const {
    kernels::CudaAttentionArgs args = args_;
    if (shape.sees_ahead && ahead_) see_ahead(ahead_, args);
    args.tokens = shape.tokens;
    args.max_positions = shape.max_positions;
    args.one_token_per_sequence = shape.one_token_each;
    return args;
  }
  const int32_t* ahead_ = nullptr;  // of passes with images whose tokens see each other
  CudaGpu* gpu_ = nullptr;
};

struct SparseAttention final : Attention {
  Status bind(const CudaBind& context) {
    const CudaView chosen = context.input(1);
    KTX_TRY(require_whole(chosen, "positions"));
    begin(context, context.attrs<AttentionAttrs>());
    args_.chosen = chosen.i32();
    args_.top_k = chosen.width;
    return {};
  }
};

struct BlockAttention final : Attention {
  Status bind(const CudaBind& context) {
    const auto attrs = context.attrs<BlockAttentionAttrs>();
    const CudaView blocks = context.input(1);
    KTX_TRY(require_whole(blocks, "blocks"));
    if (attrs.open != 0 || attrs.value_in_key != 0) {
      return Error{"no GPU kernel reads chosen entries as blocks, or blocks whose keys are values"};
    }
    begin(context, whole_attention(attrs));
    args_.blocks = blocks.i32();
    args_.top_k = blocks.width / attrs.kv_heads;
    args_.block = attrs.block;
    return {};
  }
};

// Entries of a compressed slot.
kernels::CudaKvView entry_view(const CudaBind& context, int32_t slot, int32_t dim, int32_t every) {
  kernels::CudaKvView view = context.kv_view(slot);
  view.layout = kernels::entry_layout(view.layout, dim, every);
  return view;
}

struct CompressedAttention final : Attention {
  Status bind(const CudaBind& context) {
    const auto attrs = context.attrs<CompressedAttentionAttrs>();
    const CudaView chosen = context.input(1);
    begin(context, whole_attention(attrs));
    args_.entries = entry_view(context, attrs.entries, attrs.dim, attrs.every);
    args_.every = attrs.every;
    args_.recent = attrs.window;
    args_.sinks = KTX_TRY(context.vector(0, sinks_));
    if (chosen.data == nullptr) return {};
    KTX_TRY(require_whole(chosen, "entries"));
    args_.chosen = chosen.i32();
    args_.top_k = chosen.width;
    return {};
  }
};

class Compress final : public GpuStep {
 public:
  Status bind(const CudaBind& context) {
    args_.attrs = context.attrs<CompressAttrs>();
    args_.bias = KTX_TRY(context.vector(0, bias_));
    if (args_.bias == nullptr || args_.attrs.from_first != 0) {
      return Error{"no GPU kernel makes entries without scores, or rotates the first of theirs"};
    }
    args_.norm = KTX_TRY(context.vector(1, norm_));
    args_.inv_freq = KTX_TRY(context.vector(2, inv_freq_));
    args_.kv = context.kv_view(args_.attrs.slot);
    args_.entries = entry_view(context, args_.attrs.entries, args_.attrs.dim, args_.attrs.every);
    gpu_ = &context.gpu();
    return {};
  }
  Status launch(const GpuShape& shape, std::byte*, int64_t) override {
    kernels::CudaCompressArgs args = args_;
    args.tokens = shape.tokens;
    gpu_->use();
    return kernels::launch_compress(args, gpu_->stream());
  }

 private:
  kernels::CudaCompressArgs args_;
  GpuMemory bias_, norm_, inv_freq_;
  CudaGpu* gpu_ = nullptr;
};

class TextAttention final : public Attention {
 public:
  Status bind(const CudaBind& context) {
    KTX_TRY(Attention::bind(context));
    see_ahead(context.batch().text_end, args_);
    return {};
  }
};

// A choice by scores over the keys of a KV slot; Workspace: of so many args, bytes.
template <class Args, int64_t (*Workspace)(const Args&),
          Status (*Launch)(const Args&, kernels::CudaStream)>
class ChooseStep : public GpuStep {
 public:
  Status bind(const CudaBind& context) {
    const CudaView q = context.input(0), chosen = context.output(0);
    KTX_TRY(require_whole(chosen, "the choice"));
    args_.q = q.f32();
    args_.q_stride = q.stride;
    args_.chosen = chosen.i32();
    args_.attrs = context.attrs<decltype(args_.attrs)>();
    args_.kv = context.kv_view(args_.attrs.slot);
    gpu_ = &context.gpu();
    return {};
  }
  int64_t workspace_bytes(const GpuShape& shape) const override {
    return Workspace(args_of(shape));
  }
  Status launch(const GpuShape& shape, std::byte* workspace, int64_t bytes) override {
    Args args = args_of(shape);
    args.workspace = workspace;
    args.workspace_bytes = bytes;
    gpu_->use();
    return Launch(args, gpu_->stream());
  }

 protected:
  Args args_;

 private:
  Args args_of(const GpuShape& shape) const {
    Args args = args_;
    args.tokens = shape.tokens;
    args.max_positions = shape.max_positions;
    return args;
  }
  CudaGpu* gpu_ = nullptr;
};

struct ChoosePositions final
    : ChooseStep<kernels::CudaChoosePositionsArgs, kernels::cuda_choose_positions_workspace,
                 kernels::launch_choose_positions> {
  Status bind(const CudaBind& context) {
    if (context.input(1).data == nullptr) {
      return Error{"no GPU kernel chooses positions without weights of the heads"};
    }
    args_.weights = context.input(1).f32();
    args_.weights_stride = context.input(1).stride;
    KTX_TRY(ChooseStep::bind(context));
    const ChoosePositionsAttrs& a = args_.attrs;
    if (a.every > 1) args_.kv = entry_view(context, a.slot, a.key_dim, a.every);
    return {};
  }
};

using ChooseBlocks =
    ChooseStep<kernels::CudaChooseBlocksArgs, kernels::cuda_choose_blocks_workspace,
               kernels::launch_choose_blocks>;

}  // namespace

const MakeCudaStep make_cuda_kv_store = make_bound<KvStore>;
const MakeCudaStep make_cuda_attention = make_bound<Attention>;
const MakeCudaStep make_cuda_text_attention = make_bound<TextAttention>;
const MakeCudaStep make_cuda_choose_positions = make_bound<ChoosePositions>;
const MakeCudaStep make_cuda_choose_blocks = make_bound<ChooseBlocks>;
const MakeCudaStep make_cuda_compress = make_bound<Compress>;
const MakeCudaStep make_cuda_compressed_attention = make_bound<CompressedAttention>;
const MakeCudaStep make_cuda_sparse_attention = make_bound<SparseAttention>;
const MakeCudaStep make_cuda_block_attention = make_bound<BlockAttention>;

}  // namespace ktx::runtime

// The fused op `latent` (lib/program/find_fused.h): MLA of a pass in the form that is faster for
// each of its sequences.
//
//   16 sequences, 15 with one token and one with 497 of its prompt:
//     tokens 15 .. 511   expanded (cuda_latent.h)
//     tokens 0 .. 14     absorbed, as the three steps say
//
// A sequence with fewer tokens in the pass than the launch says stays absorbed, and so do passes
// that are a graph.
#include <algorithm>

#include "kernels/cuda/common/launch_forms.h"
#include "kernels/cuda/matmul/cuda_matmul.h"
#include "kernels/cuda/mla/cuda_latent.h"
#include "lib/runtime/cuda/fused_members.h"

namespace ktx::runtime {
namespace {

class Latent final : public GpuStep {
 public:
  Result<bool> bind(const FusedMembers& members) {
    gpu_ = &members.gpu();
    expanded_from_ = members.launch().least_run;
    const CudaBind attention = members.of(StepOp::Attention);
    const CudaBind absorb = members.of(StepOp::MatmulHeads, 0),
                   expand = members.of(StepOp::MatmulHeads, 1);
    absorb_ = KTX_TRY(matmul_heads_args(absorb));
    expand_ = KTX_TRY(matmul_heads_args(expand));
    absorb_kernels_ = choices(absorb_);
    expand_kernels_ = choices(expand_);
    attention_ = attention_args(attention, attention.attrs<AttentionAttrs>());
    const AttentionAttrs& attrs = attention_.attrs;
    expanded_.latent_dim = attrs.value_dim;
    expanded_.rope_dim = attrs.key_dim - attrs.value_dim;
    expanded_.y = expand_.y;
    expanded_.y_stride = expand_.y_stride;
    expanded_.key = absorb_.w;
    expanded_.key_heads = absorb_.attrs;
    expanded_.value = expand_.w;
    expanded_.value_heads = expand_.attrs;
    expanded_.heads = attrs.heads;
    expanded_.head_dim = expand_.attrs.row_count;
    expanded_.kv = attention_.kv;
    queries_.q = absorb_.x;
    queries_.q_stride = absorb_.x_stride;
    queries_.q_head = absorb_.attrs.x_stride;
    queries_.q_rope = attention_.q + attrs.value_dim;
    queries_.q_rope_stride = attention_.q_stride;
    queries_.q_rope_head = attrs.key_dim;
    queries_.heads = attrs.heads;
    queries_.head_dim = expanded_.head_dim;
    queries_.rope_dim = expanded_.rope_dim;
    queries_.scale = attrs.scale;
    return attrs.kv_heads == 1 && absorb_.attrs.y_stride == attrs.key_dim &&
           expand_.attrs.x_stride == attrs.value_dim &&
           expand_.attrs.y_stride == expanded_.head_dim &&
           kernels::latent_expanded_takes(expanded_);
  }

  int64_t workspace_bytes(const GpuShape& shape) const override {
    // Beside an expanded sequence others may have a token each.
    int64_t most = std::max(absorbed_workspace(shape, false), absorbed_workspace(shape, true));
    for (kernels::CudaMatmulHeadsArgs heads : {absorb_, expand_}) {
      heads.tokens = shape.tokens;
      most = std::max(most, kernels::cuda_matmul_heads_workspace(heads));
    }
    if (shape.one_token_each || shape.tokens < expanded_from_) return most;
    kernels::CudaLatentArgs expanded = expanded_;
    expanded.tokens = shape.tokens;
    expanded.positions = std::min(shape.max_positions, kernels::kMostExpandedPositions);
    return query_bytes(shape.tokens) + std::max(most, kernels::latent_expanded_workspace(expanded));
  }

  // Queries are taken first, since sums of the absorbed form may lie where they are, and y is
  // written last, since it may lie where q_latent is.
  Status launch(const GpuShape& shape, std::byte* workspace, int64_t bytes) override {
    gpu_->use();
    Workspace memory{workspace, bytes};
    const auto expands = [&](const SequenceRun& run) { return is_expanded(run); };
    if (std::any_of(shape.runs.begin(), shape.runs.end(), expands)) {
      queries_.tokens = shape.tokens;
      queries_.queries = reinterpret_cast<uint16_t*>(workspace);
      KTX_TRY(kernels::launch_latent_queries(queries_, gpu_->stream()));
      memory = {workspace + query_bytes(shape.tokens), bytes - query_bytes(shape.tokens)};
    }
    absorbed_.clear();
    for (const SequenceRun& run : shape.runs) {
      if (is_expanded(run)) continue;
      if (!absorbed_.empty() && absorbed_.back().end == run.first) {
        absorbed_.back().end += run.tokens;
        absorbed_.back().one_each &= run.tokens == 1;
      } else {
        absorbed_.push_back({run.first, run.first + run.tokens, run.tokens == 1});
      }
    }
    if (shape.runs.empty()) absorbed_.push_back({0, shape.tokens, shape.one_token_each});
    for (const Tokens& some : absorbed_) {
      KTX_TRY(launch_heads(absorb_, absorb_kernels_, some, memory));
    }
    for (const Tokens& some : absorbed_) {
      kernels::CudaAttentionArgs args = attention(some.begin, some.end, shape);
      args.one_token_per_sequence = some.one_each;
      memory.give(args);
      KTX_TRY(kernels::launch_attention(args, gpu_->stream()));
    }
    for (const Tokens& some : absorbed_) {
      KTX_TRY(launch_heads(expand_, expand_kernels_, some, memory));
    }
    for (const SequenceRun& run : shape.runs) {
      if (is_expanded(run)) KTX_TRY(launch_expanded(run, memory));
    }
    return {};
  }

 private:
  struct Tokens {
    int64_t begin, end;
    bool one_each;
  };
  struct Workspace {
    std::byte* data;
    int64_t bytes;
    template <class Args>
    void give(Args& args) const {
      args.workspace = data;
      args.workspace_bytes = bytes;
    }
  };

  // The bytes of a pass's queries; a multiple of 256.
  int64_t query_bytes(int64_t tokens) const {
    const int64_t bytes =
        tokens * queries_.heads * kernels::latent_query_halves(queries_.head_dim) * 2;
    return (bytes + 255) / 256 * 256;
  }
  bool is_expanded(const SequenceRun& run) const {
    return run.tokens >= expanded_from_ && run.positions <= kernels::kMostExpandedPositions;
  }

  // The workspace of the absorbed form.
  int64_t absorbed_workspace(const GpuShape& shape, bool one_each) const {
    kernels::CudaAttentionArgs args = attention(0, shape.tokens, shape);
    args.one_token_per_sequence = one_each;
    return attention_workspace(args);
  }
  kernels::CudaAttentionArgs attention(int64_t begin, int64_t end, const GpuShape& shape) const {
    kernels::CudaAttentionArgs args = attention_;
    args.q += begin * args.q_stride;
    args.y += begin * args.y_stride;
    args.tokens = end - begin;
    args.kv.sequence += begin;
    args.kv.position += begin;
    args.max_positions = shape.max_positions;
    return args;
  }
  using Choices = std::vector<kernels::GpuChoice>;
  static Choices choices(const kernels::CudaMatmulHeadsArgs& product) {
    return kernels::choose_gpu_kernels(kernels::gpu_form(product), kernels::this_gpu());
  }
  Status launch_heads(const kernels::CudaMatmulHeadsArgs& product, const Choices& kernels,
                      const Tokens& some, const Workspace& memory) const {
    kernels::CudaMatmulHeadsArgs args = product;
    args.kernel = kernels::first_choice(kernels, some.end - some.begin, kernels::kNeedsNothing);
    args.x += some.begin * args.x_stride;
    args.y += some.begin * args.y_stride;
    args.tokens = some.end - some.begin;
    memory.give(args);
    return kernels::launch_matmul_heads(args, gpu_->stream());
  }
  Status launch_expanded(const SequenceRun& run, const Workspace& memory) const {
    kernels::CudaLatentArgs args = expanded_;
    args.queries =
        queries_.queries + run.first * args.heads * kernels::latent_query_halves(args.head_dim);
    args.y += run.first * args.y_stride;
    args.tokens = run.tokens;
    args.positions = run.positions;
    args.kv.sequence += run.first;
    args.kv.position += run.first;
    memory.give(args);
    return kernels::launch_latent_expanded(args, gpu_->stream());
  }

  kernels::CudaMatmulHeadsArgs absorb_, expand_;
  Choices absorb_kernels_, expand_kernels_;  // of those sequences that stay absorbed
  kernels::CudaAttentionArgs attention_;
  kernels::CudaLatentQueriesArgs queries_;
  kernels::CudaLatentArgs expanded_;
  int64_t expanded_from_ = 0;  // tokens of a sequence
  std::vector<Tokens> absorbed_;
  CudaGpu* gpu_ = nullptr;
};

}  // namespace

template <>
Result<std::unique_ptr<GpuStep>> make_fused<kernels::GpuKernel::LatentExpanded>(
    const FusedMembers& members) {
  return make_fused_step<Latent>(members);
}

}  // namespace ktx::runtime
